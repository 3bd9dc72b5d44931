"""What an adaptation found and changed, as a page, as pictures, and as text for a terminal.

Enters: a `View` (`view.py`), which is plain data that `driver/view` collects and `view.json` holds; events of the order engine.
Leaves: HTML that needs nothing else, SVG, DOT. Every text in it is hostile until `html.py` has escaped it.
Open first: `page.py`, the table of sections; each section is a function from data to HTML."""
