"""A certificate authority, and the certificate of a server such as a webhook, recreated for each use."""

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

DAYS = 365  # controllers that look after their certificates renew those that end soon


class Certificates(NamedTuple):
    """PEM files under the names that controllers' secrets have."""

    files: dict[str, bytes]

    @property
    def authority(self) -> bytes:
        """The certificate that an API server has to trust."""
        return self.files["ca.crt"]


def make_certificates(service: str, authority: str, *others: str, address: str = "127.0.0.1") -> Certificates:
    """Make them for a server with these DNS names and this address, by an authority of that name.

    The authority has its name as a DNS name too: that is how the rotator of cert-controller knows its
    own; and it reads RSA keys only.
    """
    ca_key, key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    ca = _named(authority, authority, ca_key)
    ca = ca.add_extension(x509.SubjectAlternativeName([x509.DNSName(authority)]), False)
    ca = ca.add_extension(x509.BasicConstraints(True, None), True)
    names = [*map(x509.DNSName, (service, *others)), x509.IPAddress(ipaddress.ip_address(address))]
    server = _named(service, authority, key).add_extension(x509.SubjectAlternativeName(names), False)
    return Certificates(
        {
            "ca.crt": _signed(ca, ca_key),
            "ca.key": _pem(ca_key),
            "tls.crt": _signed(server, ca_key),
            "tls.key": _pem(key),
        }
    )


def _named(subject: str, issuer: str, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=DAYS))
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _signed(builder: x509.CertificateBuilder, key: rsa.RSAPrivateKey) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
