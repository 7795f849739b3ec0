// What the data of a run give each input of a graph.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/exported/exported_model.h"
#include "runtime/config/family/family.h"
#include "runtime/config/json/tree.h"

namespace dstrain::exported {

// An input of a graph with what it gets.
struct FedInput {
  const GraphInput* input = nullptr;
  InputRole role = InputRole::array;
  bool unshifted = false;  // labels that are tokens at their own places
};

// Returns the user's inputs of a graph, in order.
std::vector<const GraphInput*> user_inputs(const Graph& graph);

// Returns what is wrong with a value of dstrain.model.inputs; empty: nothing.
std::string inputs_problem(const dstrain::Node& value);

// Returns what the data give each input of the user. `chosen`: the value of dstrain.model.inputs as JSON text, which says what
// texts give; inputs that it does not name have what their names say. Where nothing is known of the data, they are texts if
// these give all inputs. Throws UserError if texts do not, or an input cannot take what it is to get.
std::vector<FedInput> feed_inputs(const ExportedModel& model, GivenData data,
                                  const std::string& chosen);

// Returns the elements of an input that is not loaded, as samples are whole texts without padding: no role has others.
std::vector<int64_t> usual_elements(InputRole role, int64_t samples, int64_t tokens);

}  // namespace dstrain::exported
