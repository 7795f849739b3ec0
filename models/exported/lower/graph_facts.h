// GraphFacts: what a graph does not say itself about the program that it becomes.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/input_role.h"
#include "runtime/ir/program.h"

namespace dstrain::exported {

// What a parameter of a graph is in the program.
struct ParameterFacts {
  std::string name{};        // the first one of its tensor
  Init init = Init::normal;  // like its values in the archive, where a run has no weights
  float scale = 0;
};

// What a buffer of statistics is in the program.
struct RunningFacts {
  std::string name{};       // outside the graph
  Init init = Init::zeros;  // where a run has no weights
};

// What a graph does not say itself, by the names that it has.
struct GraphFacts {
  std::map<std::string, InputRole, std::less<>> roles;  // of the user's inputs
  std::string unshifted;  // labels that are tokens at their own places; empty: there are none
  std::map<std::string, ParameterFacts, std::less<>> parameters;
  // Buffers of statistics that steps change.
  std::map<std::string, RunningFacts, std::less<>> running;
  std::string loss_weight{};   // the name of the output that weighs the loss; empty: none does
  bool counts_labels = false;  // and whether that follows from the labels
  std::vector<std::string>
      blocks{};  // patterns of the modules that are layers; none: found by itself
  // The modules that are the numbered layers, in order, whatever parameters they have; none: as `blocks` says.
  std::vector<std::string> numbered{};

  // Inputs have no dimension of samples: a sample has all of each, as the nodes and the edges of a graph.
  bool is_one_sample = false;

  // Returns the role of an input of the user. Throws InternalError if it has none.
  InputRole role_of(std::string_view input) const;
};

}  // namespace dstrain::exported
