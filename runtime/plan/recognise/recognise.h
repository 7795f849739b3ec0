// Recognition: general operations that compute what a named one is made for become that one, which has faster kernels and less
// to keep for the backward pass. Values differ by roundings alone. It comes first of all passes, behind the model.
#pragma once

#include "runtime/ir/program.h"

namespace dstrain {

// Calls the rules below in their order. Instructions whose results nothing reads any more go, and so
// do constants.
void recognise(Program& program);

// Each rule looks at all instructions of the forward pass.

// Makes activations, gates, sums, caps and factors of maps whose formula is theirs.
void recognise_formulas(Program& program);
// Makes linear of the product of rows and a weight, with the bias that a map adds and the activation that it applies.
void recognise_products(Program& program);
// Makes rms_norm of a sum of squares and the map that divides by its root, and layer_norm of the sums of rows and of squares.
void recognise_norms(Program& program);
// Lets batch_norm add a residual and apply a relu, which a map or an activation does with its result alone.
void recognise_batch_norms(Program& program);
// Makes rotary of a map that turns halves of heads by angles which its tables of constants have.
void recognise_rotary(Program& program);
// Makes attention of the product of values and a softmax of scores, causal ones or all, with copies of its operands and of its
// result.
void recognise_attention(Program& program);
// Lets attention read queries, keys and values where they are, where it would read copies of them: also keys that were repeated
// for the heads that they serve.
void recognise_heads(Program& program);
// Lets operations read what a copy, which is in the same order, is of.
void read_originals(Program& program);
// Makes embed of rows of a table that the tokens of samples name, and lets it add the positions that a map adds.
void recognise_embeddings(Program& program);
// Makes cross_entropy of the sum of what a softmax of logits has for each target, where targets below 0 do not count.
void recognise_losses(Program& program);
// Lets cross_entropy put the gradient of logits that it alone reads in the place of these.
void overwrite_logits(Program& program);

}  // namespace dstrain
