"""Students that score a text in one unmasked pass, distilled from a masked model's pseudo-log-likelihoods."""
