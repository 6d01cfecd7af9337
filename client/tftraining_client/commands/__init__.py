"""The commands of `tftj` on a cluster. `app` has their options; the other modules are imported when a command runs."""
