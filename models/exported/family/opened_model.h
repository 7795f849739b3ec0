// OpenedModel: an archive that a run trains, as a family of its own.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "models/exported/exported_model.h"
#include "models/exported/fold/fold.h"
#include "models/exported/lower/lowering.h"
#include "runtime/config/model/family.h"

namespace dstrain::exported {

class OpenedModel {
 public:
  // Reads the archive but for its weights. `arrays`: inputs are arrays of a data file, else tokens and what follows from
  // them. `keys`: those that all archives have. Throws UserError.
  OpenedModel(const std::string& path, bool arrays, const std::vector<ModelKey>& keys);
  OpenedModel(const OpenedModel&) = delete;
  OpenedModel& operator=(const OpenedModel&) = delete;

  // Returns the family, which lives as long as this object.
  const ModelFamily& family() const { return family_; }

 private:
  void find_batch();
  void find_inputs(bool arrays);
  void find_parameters();
  // Adds a key with one value, which nothing sets. Returns its name.
  std::string_view add_size(std::string_view name, int64_t value);
  // Returns the values of its symbols with this batch.
  SymbolValues symbols(int64_t batch) const;
  // Returns the graph with the constants, of a batch of this size. Any thread may ask.
  std::shared_ptr<const FoldedGraph> folded(int64_t batch) const;
  void build(Builder& builder) const;
  // Returns the parameters that the graph reads and the statistics that steps change, each once.
  std::vector<const StoredTensor*> read_weights() const;
  ForeignNames names_of_weights() const;
  // Returns what the module's state has beside the parameters that the graph reads.
  std::vector<KeptTensor> kept_tensors() const;
  // Returns the first name of the tensor that is a parameter of the graph, where it has several.
  const std::string& first_name(const std::string& parameter) const;

  ExportedModel model_;
  std::deque<std::string> texts_;  // of keys
  ModelFamily family_;
  GraphFacts facts_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::shared_ptr<const FoldedGraph>> folded_;  // by batch
};

}  // namespace dstrain::exported
