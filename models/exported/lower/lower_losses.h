// The losses of a program from those of a graph.
#pragma once

#include <vector>

#include "models/exported/lower/loss_mean.h"

namespace dstrain::exported {

class Lowering;

// Emits the losses, and lets those that are metrics, too, be reported as such.
void emit_losses(Lowering& lowering, const LossTerms& losses, const LossMean& mean,
                 const std::vector<GraphOutput>& metrics);

}  // namespace dstrain::exported
