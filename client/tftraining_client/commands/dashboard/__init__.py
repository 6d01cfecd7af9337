"""`tftj dashboard`: a read-only page on the loopback interface, by the rights of the caller.

`view` is pure; `feeds` watches the cluster, `server` answers the browser, `static` has the page.
"""
