// OpenedModel: an archive that a run trains, as a family of its own.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "models/exported/exported_model.h"
#include "models/exported/family/graph_inputs.h"
#include "models/exported/fold/fold.h"
#include "models/exported/fold/input_function.h"
#include "models/exported/lower/lowering.h"
#include "runtime/config/family/family.h"

namespace dstrain::exported {

// What a configuration says of the archive, by the keys of the family.
struct GraphSettings {
  std::string file;
  std::string inputs{};        // as JSON text; empty: by their names
  std::string loss_weight{};   // the name of an output; empty: none weighs the loss
  std::string blocks{};        // as JSON text; empty: found by itself
  std::string strip_prefix{};  // what the names of tensors begin with in the archive alone
};

class OpenedModel {
 public:
  // Reads the archive but for its weights. `data`: where inputs come from. `keys`: those that all archives have. Throws
  // UserError.
  OpenedModel(GraphSettings settings, GivenData data, const std::vector<ModelKey>& keys);
  OpenedModel(const OpenedModel&) = delete;
  OpenedModel& operator=(const OpenedModel&) = delete;

  // Returns the family, which lives as long as this object.
  const ModelFamily& family() const { return family_; }

 private:
  void find_batch();
  void find_inputs(GivenData data);
  void add_input(const FedInput& fed);
  void find_parameters();
  void find_layers();
  void find_metrics();
  // Checks the prefix that names lose.
  void check_prefix() const;
  // Returns the name of a tensor of the archive outside it.
  std::string own_name(const std::string& name) const;
  // Returns what a micro-batch counts in the loss.
  int64_t weigh(std::span<const InputTensor> inputs) const;
  // Adds a key with one value, which nothing sets. Returns its name.
  std::string_view add_size(std::string_view name, int64_t value);
  // Returns the values of its symbols with this batch.
  SymbolValues symbols(int64_t batch) const;
  // What the constants of a program depend on: its samples, and whether these have several documents, or padding.
  struct Form {
    int64_t batch = 1;
    bool documents = false, padding = false;
    bool operator<(const Form& other) const {
      return std::tie(batch, documents, padding) <
             std::tie(other.batch, other.documents, other.padding);
    }
  };
  // Returns the graph with its constants. Any thread may ask.
  std::shared_ptr<const FoldedGraph> folded(const Form& form) const;
  void build(Builder& builder) const;
  // Returns the parameters that the graph reads and the statistics that steps change, each once.
  std::vector<const StoredTensor*> read_weights() const;
  ForeignNames names_of_weights() const;
  // Returns what the module's state has beside the parameters that the graph reads.
  std::vector<KeptTensor> kept_tensors() const;
  // Returns the first name of the tensor that is a parameter of the graph, where it has several.
  const std::string& first_name(const std::string& parameter) const;

  GraphSettings settings_;
  ExportedModel model_;
  std::deque<std::string> texts_;  // of keys
  ModelFamily family_;
  GraphFacts facts_;
  mutable std::mutex mutex_;
  mutable std::map<Form, std::shared_ptr<const FoldedGraph>> folded_;
  mutable std::map<Form, InputFunction> weights_;  // of the loss
};

}  // namespace dstrain::exported
