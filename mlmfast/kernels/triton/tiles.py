"""One tile of logits, which every sweep of the vocabulary starts from."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def logit_tile(
    input_ptr,  # [N, D]
    weight_ptr,  # [V, D]
    bias_ptr,  # [V] or None
    rows,  # int64[ROWS], each < N
    classes,  # int32[CLASSES], some perhaps >= V
    num_classes,
    num_features,
    FEATURES: tl.constexpr,
    PRODUCT_IN_FLOAT32: tl.constexpr,
):
    """float32[ROWS, CLASSES]; -inf in the columns past the vocabulary.

    float32 inputs are multiplied as three tf32 products (tf32x3), which on the matrix units come within
    about 2^-21 of the exact one; `ieee` would leave those units idle. PRODUCT_IN_FLOAT32 is for the
    interpreter, which has no bfloat16 product.
    """
    features = tl.arange(0, FEATURES)
    real_classes = tl.minimum(classes, num_classes - 1).to(tl.int64)
    input_tile = input_ptr + rows[:, None] * num_features + features[None, :]
    weight_tile = weight_ptr + real_classes[None, :] * num_features + features[:, None]
    # The sums start from the bias: added afterwards, it would take registers of its own.
    inside = classes < num_classes
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + classes, mask=inside, other=float("-inf")).to(tl.float32)
    else:
        bias = tl.where(inside, 0.0, float("-inf"))
    logits = tl.broadcast_to(bias[None, :], (rows.shape[0], classes.shape[0]))
    for first_feature in range(0, num_features, FEATURES):
        remaining = features < num_features - first_feature
        left = tl.load(input_tile + first_feature, mask=remaining[None, :], other=0.0)
        right = tl.load(weight_tile + first_feature, mask=remaining[:, None], other=0.0)
        if PRODUCT_IN_FLOAT32:
            left = left.to(tl.float32)
            right = right.to(tl.float32)
        logits = tl.dot(left, right, logits, input_precision="tf32x3")
    return logits
