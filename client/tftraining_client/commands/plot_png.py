"""The curves of a job as a PNG image, by matplotlib, which is an extra of the package."""

from io import BytesIO

from tftraining_client.commands.curves import Curves
from tftraining_client.errors import UserError

INCHES = (9.0, 3.0)  # of one plot


def png_image(curves: Curves) -> bytes:
    """The image. UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  optional, and slow to import
    except ImportError:
        raise UserError(
            "tftj plot -o png needs matplotlib: pip install matplotlib (-o html and the terminal do without)"
        ) from None
    figure = Figure(figsize=(INCHES[0], INCHES[1] * len(curves.curves)), layout="constrained")
    places = figure.subplots(len(curves.curves), squeeze=False, sharex=True)[:, 0]
    for axes, curve in zip(places, curves.curves, strict=True):
        axes.plot(curve.xs, curve.ys, marker="o" if len(curve.xs) == 1 else None)
        # parse_math: a "$" in a name is not the beginning of a formula.
        axes.set_title(f"{curve.name}: {curve.summary}", fontsize=9, loc="left", parse_math=False)
        axes.set_xlabel(curves.axis)
        axes.grid(alpha=0.3)
        for restart in curves.shown_restarts:
            axes.axvline(restart.x, color="tab:orange", linestyle="--", linewidth=1)
    image = BytesIO()
    figure.suptitle(curves.job, parse_math=False)
    figure.savefig(image, format="png", dpi=120)
    return image.getvalue()
