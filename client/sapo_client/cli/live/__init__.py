"""Commands that show a running node live: in the browser, and in the terminal."""
