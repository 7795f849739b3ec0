// Where in the list the collectives of layers and samples that ranks divide are.
#pragma once

#include "runtime/ir/program.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

// Moves each collective of the tensor and of the sequence group forward in the list, to where what it sends has been
// written, but past no more than one product: so it can travel beside that product. Backward rules emit the gradients of a
// product together, and the sum of the input gradient over ranks behind them; so it comes to lie in front of the weight
// gradient. Rows that are gathered again for a weight gradient come to lie in front of the input gradient. A collective
// passes no other operation of a channel, and leaves neither its phase nor its part of the model. Runs after recompute().
// No number changes.
void issue_early(Program& program, const Place& place);

}  // namespace dstrain
