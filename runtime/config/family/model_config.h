// ModelConfig: the model of a job: its family and the values of the family's keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/core/fine_tuning/fine_tuning.h"
#include "runtime/core/input_role.h"

namespace dstrain {

struct ModelFamily;
struct ModelInput;
struct ModelMeasures;

class ModelConfig {
 public:
  using Value = std::variant<int64_t, double, bool, std::string>;

  ModelConfig() = default;  // no model; every member but == throws InternalError
  // The defaults of the family's keys. A key without a default has the value 0, false or "".
  explicit ModelConfig(const ModelFamily& family);

  const ModelFamily& family() const;

  // Return the value of a key, which has its name inside dstrain.model: "depth". Throw InternalError if the family has
  // no such key, or if its values are of another type.
  int64_t integer(std::string_view key) const;
  double real(std::string_view key) const;
  bool flag(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const Value& value(std::string_view key) const;
  // Sets the value of a key. An integer is taken for a real, too. Throws as the functions above.
  void set(std::string_view key, const Value& value);

  // What the runtime asks of every family.
  int64_t layers() const;   // that are numbered
  int64_t width() const;    // of a layer
  int64_t context() const;  // the most tokens that it is made for; 1 where a sample has no tokens
  // Returns the tokens of a sample in training (T): those that set_seq_len() has set, else usual_seq_len().
  int64_t seq_len() const;
  // Returns T where dstrain.data.seq_len does not say it: the context, or what the family takes of it.
  int64_t usual_seq_len() const;
  // Returns the number of token ids; 0: it is not known yet, or the model has no tokens.
  int64_t vocabulary() const;
  // Returns this model, with a vocabulary of one token where the size is not known yet: for shapes and names.
  ModelConfig with_any_vocabulary() const;
  // Sets the number of numbered layers, unless the family counts them itself, and nothing changes it.
  void set_layers(int64_t layers);
  // Sets the tokens of a sample in training; 0: the usual ones.
  void set_seq_len(int64_t tokens) { seq_len_ = tokens; }
  // What the run changes about the model that the family builds.
  const FineTuning& fine_tuning() const { return fine_tuning_; }
  void set_fine_tuning(FineTuning tuning) { fine_tuning_ = std::move(tuning); }
  // Sets the number of token ids. The model must have tokens.
  void set_vocabulary(int64_t size);
  // Rows that the tables of the vocabulary have in the weights that a run begins with; 0: as many as there are ids. Further
  // rows are new (ForeignNames::GrownTables).
  int64_t stored_vocabulary() const { return stored_vocabulary_; }
  void set_stored_vocabulary(int64_t rows) { stored_vocabulary_ = rows; }
  // Whether the head gives a score (kScoreTensor), and not the probabilities of tokens.
  bool gives_score() const { return gives_score_; }
  void set_gives_score(bool gives) { gives_score_ = gives; }
  // Sets the inputs that every sample has all of (dstrain.data.whole). Each must be an array that can be whole.
  void set_whole(std::vector<std::string> inputs) { whole_ = std::move(inputs); }
  const std::vector<std::string>& whole() const { return whole_; }
  bool is_whole(std::string_view input) const;
  // Returns the sizes of a sample in training of an input of the family.
  std::vector<int64_t> sizes_of(const ModelInput& input) const;
  // Returns the elements that a sample in training of the input with this role has, of several inputs the first one. Throws
  // InternalError if there is none.
  int64_t elements_of(InputRole role) const;
  // Returns the sizes of the program that the family builds; none of a family of files whose file has not been opened. Where
  // the vocabulary is not known, it counts as one token.
  ModelMeasures measures() const;

  bool operator==(const ModelConfig&) const = default;

 private:
  size_t index_of(std::string_view key) const;
  template <class T>
  const T& get(std::string_view key) const;

  const ModelFamily* family_ = nullptr;
  std::vector<Value> values_;  // in the order of the family's keys
  int64_t seq_len_ = 0;        // 0: the usual ones
  int64_t stored_vocabulary_ = 0;
  bool gives_score_ = false;
  std::vector<std::string> whole_;
  FineTuning fine_tuning_;
};

}  // namespace dstrain
