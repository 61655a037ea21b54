"""Filling gaps, compared: the same windows with the same gaps for every method.

    samples        logs -> windows of sensors, some of them held out
    gaps           which sensors of a window are lost, and when
    own_model      our model's answers
    specialists    SAITS, BRITS and CSDI of PyPOTS
    classical      interpolation and a Kalman smoother
    score          answers -> errors and coverage

Letters: N windows, W steps of each, K sensors that can be lost, D columns of all values.
"""
