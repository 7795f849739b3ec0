// Merging: the file, --model, --set and the other options become one tree, later ones replacing earlier
// ones. Every value of the merged tree keeps the place where it was written.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/config/config_request.h"
#include "runtime/config/json/tree.h"

namespace dstrain {

// The names by which messages call the configuration file and the file of --model.
struct SourceNames {
  std::string file, model_file;
};

// Returns where the value of `key` at `place` was written: "ds_config.json:12:5", "--set", "--steps".
std::string where(const SourceNames& names, const SourcePlace& place, std::string_view key);

// Sets the value at the dotted `path`, creating sections on the way. Returns false and changes nothing
// if a value on the way is neither a section nor null.
bool put(Node& root, std::string_view path, Node value);

// Who says that a key is ignored.
struct Ignored {
  std::string by;     // "--ignore amp", "dstrain.ignore"
  SourcePlace place;  // of the key's name in the list dstrain.ignore, or the command line
};

// A configuration with the command line applied.
struct Merged {
  Node root;
  SourceNames names;
  std::map<std::string, Ignored> ignored;  // by dotted key
  const ModelRegistry* models = nullptr;
  // The text of the file that has the section dstrain.model, and the folder of transformers' files that it is in; empty:
  // there is none.
  std::string model_text, model_directory;
  Node directory_model;  // the section as the folder's file has it; null: there is no folder
  bool model_has_namesake = false;  // as ModelSource's
  std::string folder_of_weights;    // as ModelSource's
  std::string
      model_error;  // why there is no model that the file names by a text; empty: there is one, or none is named
};

// Reads the file of `request` and applies the options: --model replaces the model section, --set changes
// keys, the other options come last. Throws SyntaxError if the file is malformed, and UserError for
// everything else that cannot be read.
Merged merge(const ConfigRequest& request);

// Returns the tree without ignored keys.
Node without_ignored(const Merged& merged);

// Returns the tree without ignored keys, with old key names replaced by the current ones, old forms
// (zero_optimization: true) by the current forms, and config.json's form of a model by that of its family's keys.
Node canonical(const Merged& merged);

}  // namespace dstrain
