"""The explorer: a page in the browser, and the local server that answers it."""
