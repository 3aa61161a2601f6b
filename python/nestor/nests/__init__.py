"""Nests: the model of a nest file, and the builder that @nestor.nest and the importer of nestor.torch share."""
