// WeightFiles: the tensors of one safetensors file, or of the files that an index lists, by their names. Files may be
// hostile (safetensors.h); an index may only name files beside it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/family/weight_map.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/formats/safetensors.h"

namespace dstrain {

inline constexpr std::string_view kWeightsName = "model.safetensors",
                                  kIndexName = "model.safetensors.index.json",
                                  kIndexSuffix = ".safetensors.index.json";

// Returns the weights file that `path` names: itself, or model.safetensors in it if it is a directory. Throws UserError
// if it is a directory without that file.
std::string weights_file(const std::string& path);

// Returns the weights file or the index in the folder of a model or of a run. `option` names the folder in messages
// ("--model DIR"). Throws UserError if there is none, with what to do where the weights have another format.
std::string directory_weights(const std::string& directory, std::string_view option);

// Returns the name of a tensor that a file has for a message: not too long, and without control characters.
std::string shown_name(const std::string& name);

// The files of an index, each with the names of its tensors.
using WeightIndex = std::map<std::string, std::vector<std::string>>;

// Returns what the text of an index lists. `path` names it in messages. Throws UserError for any other text, and if a file
// is not named as one beside it.
WeightIndex parse_weight_index(std::string_view text, const std::string& path);

// Returns `path`, and for an index the files that it lists, in the order of their names. Throws UserError as WeightFiles.
std::vector<std::string> files_of_weights(const std::string& path);

class WeightFiles {
 public:
  // Opens a file, or the files of an index, and reads their headers. Throws UserError.
  explicit WeightFiles(const std::string& path, const ForeignNames& names = {});

  const std::string& path() const { return path_; }

  // A tensor and the file that has it.
  struct Found {
    const InputFile* file = nullptr;
    const SafetensorsTensor* tensor = nullptr;
  };
  // Returns the tensor that the model calls `name`; nothing if there is none.
  std::optional<Found> find(std::string_view name) const;
  // Calls f(tensor, name) for every tensor that is not to be ignored, with its name after the prefix that it may lack.
  void for_each(const std::function<void(const SafetensorsTensor&, const std::string&)>& f) const;

 private:
  struct Part {
    InputFile file;
    SafetensorsHeader header;
  };
  void open_index();
  bool is_ignored(const std::string& name) const;

  std::string path_;
  ForeignNames names_;
  std::vector<Part> parts_;
  bool lacks_prefix_ = false;
};

}  // namespace dstrain
