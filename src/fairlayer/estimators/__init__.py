"""Estimators with the interface of scikit-learn, and their folders. Import them from fairlayer.sklearn."""
