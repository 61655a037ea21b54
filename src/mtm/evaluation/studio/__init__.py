"""A page in the browser on which one clicks what is visible and sees the model answer.

serving     the server: an address to open
app         who may ask (security), and what is answered (routes)
workspace   the runs and data sets that there are
"""
