"""The GPU as a device, and timing on it. Open first: `device.py`."""
