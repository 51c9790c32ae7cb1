"""Reading of a model's folder, and what it must have before it is trained."""
