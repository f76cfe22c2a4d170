"""The portal: pages for operators in a browser, which use nothing but the control API.

The files are served as they are, without a build step; `routes/portal.py` does that. `main.js` is
where a browser begins.
"""
