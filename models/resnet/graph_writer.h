// GraphWriter: writes a graph of PyTorch's operators, as torch.export gives one of a module, so that a built-in model of
// images becomes a program as exported ones do (models/exported/lower).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/exported/graph/graph.h"
#include "models/exported/lower/graph_facts.h"

namespace dstrain::residual {

using exported::Argument;
using exported::GraphFacts;
using exported::ScalarType;
using exported::TensorRef;

class GraphWriter {
 public:
  // Operators that are written from now on belong to this module: "layer1.0.conv1".
  void module(std::string path) { module_ = std::move(path); }
  // Declare what the graph is given: an input of arrays of the data, a weight with its fresh values, and a buffer of
  // statistics that steps change.
  TensorRef input(const std::string& name, ScalarType type, const std::vector<int64_t>& sizes);
  TensorRef parameter(const std::string& name, const std::vector<int64_t>& sizes, Init init,
                      float scale = 0);
  TensorRef running(const std::string& name, int64_t values, Init init);
  // Adds an operator with one result of these sizes, by the names of its schema (models/exported/graph/op_schema_table.cpp).
  TensorRef add(const std::string& target, std::vector<std::pair<std::string, Argument>> arguments,
                const std::vector<int64_t>& sizes, ScalarType type = ScalarType::f32);
  // Says that the graph returns a number under a name: "loss", or a metric.
  void output(const std::string& name, TensorRef number);
  // Returns a size of a tensor.
  int64_t size(TensorRef tensor, size_t dimension) const {
    return graph_.tensor(tensor).sizes.at(dimension).value();
  }
  std::vector<int64_t> sizes(TensorRef tensor) const;

  const exported::Graph& graph() const { return graph_; }
  GraphFacts& facts() { return facts_; }

 private:
  TensorRef tensor(std::string name, ScalarType type, const std::vector<int64_t>& sizes);

  exported::Graph graph_;
  GraphFacts facts_;
  std::string module_;
};

// Returns whole numbers as the argument of an operator.
Argument whole_numbers(std::vector<int64_t> numbers);

}  // namespace dstrain::residual
