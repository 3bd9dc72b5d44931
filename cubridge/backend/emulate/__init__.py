"""The kernel text itself on a CPU, as a device. Open first: `device.py`."""
