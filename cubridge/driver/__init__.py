"""The stages put together: lift, transfer, lower, check. Imports everything below it and nothing above."""
