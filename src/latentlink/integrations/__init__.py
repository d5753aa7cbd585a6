"""Drop-in faces of the losses, each the shape the users of another library know.

Import the one you need: `latentlink.integrations.sentence_transformers`, `.open_clip`, `.metric_learning`.
lightly's users need none: `latentlink.losses.NTXentLoss(temperature)(z0, z1)` is called as theirs, and
info-nce-pytorch's call `latentlink.losses.InfoNCELoss(temperature, negative_mode=…)` as theirs.
"""
