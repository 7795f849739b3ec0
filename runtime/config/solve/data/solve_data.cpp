#include "runtime/config/solve/data/solve_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/config/solve/data/data_names.h"
#include "runtime/config/solve/data/solve_images.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

// Sets the tokens of a sample. They are recorded where they are not the model's context, which has a key of its own.
void solve_seq_len(ModelConfig& model, Values& v, Diagnostics& diagnostics) {
  constexpr std::string_view key = "dstrain.data.seq_len";
  const ModelFamily& family = model.family();
  const std::string context_key = model_path(family.context_key());
  const int64_t context = model.context(), usual = model.usual_seq_len();
  if (!v.given(key) && usual == context) return;
  const int64_t tokens =
      v.integer(key, usual, fmt::format("{}, at most {}", context_key, family.usual_tokens));
  if (family.is_fixed && tokens != context)
    return diagnostics.error(
        key, fmt::format("{} is not the {} of the model's file: remove it, or export the model "
                         "with samples of {}",
                         tokens, counted(context, "token"), counted(tokens, "token")));
  model.set_seq_len(tokens);
  if (tokens > context && !(family.exceeds_context && family.exceeds_context(model)))
    diagnostics.error(key,
                      fmt::format("{} is more than {} {}, which the model is made for: use at most "
                                  "that",
                                  tokens, context_key, context),
                      {context_key});
}

void solve_files(DataConfig& d, const ModelFamily& family, Values& v, Diagnostics& diagnostics,
                 const ConfigRequest& request) {
  const bool arrays = family.reads_arrays();
  const bool images = d.format == DataFormat::images;
  const std::string_view file = images   ? "a folder of images"
                                : arrays ? "a file of arrays"
                                         : "a text or token file",
                         files = images   ? "folders of images"
                                 : arrays ? "files of arrays"
                                          : "token files";
  constexpr std::string_view key = "dstrain.data.path", val_key = "dstrain.data.val_path";
  d.paths = v.texts(key);
  if (std::ranges::any_of(d.paths, &std::string::empty))
    diagnostics.error(key, d.paths.size() == 1 ? fmt::format("is empty: name {}", file)
                                               : fmt::format("has an empty name: name {}", files));
  else if (d.paths.empty() && request.need_data)
    diagnostics.error(key, fmt::format("missing: name {}, here or with --data", file));
  if (const Member* val = v.given(val_key); val && val->value.text.empty())
    diagnostics.error(val_key, "is empty: name a file, or remove the key");
  else if (val)
    d.val_path = v.text(val_key, "", "");
}

// Returns how the model of a file gets an input that tells documents apart.
std::string input_advice(const ModelFamily& family) {
  if (family.inputs_key.empty()) return "";
  return fmt::format(
      ", or export the model with an input of documents or positions, of which {}={{\"NAME\": "
      "\"documents\"}} says which it is",
      model_path(family.inputs_key));
}

// Says of each of the keys that is given that it has no effect.
void leave_out(std::span<const std::string_view> keys, const std::string& reason, const Values& v,
               Diagnostics& diagnostics) {
  for (const std::string_view key : keys)
    if (v.given(key) && !diagnostics.stopped(key)) diagnostics.no_effect(key, reason);
}

constexpr std::string_view kOfTexts[] = {"dstrain.data.seq_len",  "dstrain.data.token_dtype",
                                         "dstrain.data.vocab",    "dstrain.data.packing",
                                         "dstrain.data.too_long", "dstrain.data.chat_template",
                                         "dstrain.data.loss_on",  "dstrain.data.skip_invalid"};
constexpr std::string_view kOfArrays[] = {"dstrain.data.whole"};

void solve_packing(Job& job, Values& v, Diagnostics& diagnostics) {
  constexpr std::string_view key = "dstrain.data.packing";
  DataConfig& d = job.data;
  const std::string packing = job.objective.compares_answers()
                                  ? v.text(key, "pad", "dstrain.objective")
                                  : v.text(key),
                    too_long = v.text("dstrain.data.too_long");
  d.packing = packing == "pack" ? Packing::pack : packing == "pad" ? Packing::pad : Packing::none;
  d.too_long = too_long == "drop"    ? TooLong::drop
               : too_long == "error" ? TooLong::error
                                     : TooLong::cut;
  if (d.packing == Packing::none) return;
  const ModelFamily& family = job.model.family();
  if (job.model.seq_len() < 2)
    diagnostics.error(key, "no document of a sample of one token has a target: use \"none\"");
  if (d.packing == Packing::pack && !family.tells_documents())
    diagnostics.error(key, fmt::format("a sample of the {} holds one document: use \"pad\" or "
                                       "\"none\"{}",
                                       family.title, input_advice(family)));
  if (family.input(InputRole::features))
    diagnostics.error(key, fmt::format("the {} reads features beside tokens, which documents do "
                                       "not have: use \"none\"",
                                       family.title));
  if (d.format == DataFormat::characters || d.format == DataFormat::bytes)
    diagnostics.error(key,
                      "wants token files, whose documents `dstrain tokenize` writes beside them, "
                      "or texts for a model's tokenizer: use \"none\", data of format bin, or no "
                      "format",
                      {"dstrain.data.format"});
}

// Fills in how files of text or tokens are read.
void solve_tokens(Job& job, Values& v, Diagnostics& diagnostics, const ConfigRequest& request) {
  DataConfig& d = job.data;
  solve_seq_len(job.model, v, diagnostics);
  if (v.given("dstrain.data.vocab")) d.vocab = v.text("dstrain.data.vocab", "", "");
  const std::string format = v.text("dstrain.data.format");
  d.format = format == "char"   ? DataFormat::characters
             : format == "byte" ? DataFormat::bytes
             : format == "bin"  ? DataFormat::tokens
                                : DataFormat::automatic;
  if (format == "arrays" || format == "images")
    diagnostics.error("dstrain.data.format",
                      fmt::format("\"{}\" is of models whose inputs are arrays, and the {} "
                                  "reads tokens: use auto, char, byte or bin",
                                  format, job.model.family().title));
  constexpr std::string_view dtype_key = "dstrain.data.token_dtype";
  const std::string dtype = v.text(dtype_key);
  d.token_dtype = dtype == "uint16"   ? TokenDtype::uint16
                  : dtype == "uint32" ? TokenDtype::uint32
                                      : TokenDtype::automatic;
  if (d.token_dtype != TokenDtype::automatic &&
      (d.format == DataFormat::characters || d.format == DataFormat::bytes))
    diagnostics.error(
        dtype_key,
        fmt::format("is of token files, and data of format {} have no ids: remove it", format),
        {"dstrain.data.format"});
  const int64_t ids = job.model.vocabulary();
  const std::string vocabulary_key = model_path(job.model.family().vocabulary_key());
  if (d.format == DataFormat::tokens && ids == 0 && !request.assume_vocabulary &&
      !diagnostics.stopped(vocabulary_key))
    diagnostics.error(vocabulary_key,
                      "missing: data of format bin does not say it; give the tokenizer's number of "
                      "tokens");
  if (d.format == DataFormat::bytes && ids > 0 && ids < 256)
    diagnostics.error(vocabulary_key,
                      fmt::format("{} is less than the 256 of data of format byte", ids));
  solve_packing(job, v, diagnostics);
  if (v.given("dstrain.data.loss_on")) {
    const std::string loss_on = v.text("dstrain.data.loss_on", "", "");
    d.loss_on = loss_on == "assistant"    ? LossOn::assistant
                : loss_on == "completion" ? LossOn::completion
                                          : LossOn::all;
  }
  d.skip_invalid = v.flag("dstrain.data.skip_invalid");
  constexpr std::string_view template_key = "dstrain.data.chat_template";
  if (const Member* given = v.given(template_key); given && given->value.text.empty())
    diagnostics.error(template_key,
                      "is empty: name chatml, llama3, qwen or a file, or remove the key");
  else if (given)
    d.chat_template = v.text(template_key, "", "");
}

// Sets the inputs that every sample has all of.
void solve_whole(ModelConfig& model, Values& v, Diagnostics& diagnostics) {
  constexpr std::string_view key = "dstrain.data.whole";
  std::vector<std::string> named = v.texts(key), known;
  for (const ModelInput& input : model.family().inputs)
    if (!input.whole.empty()) known.emplace_back(input.name);
  for (const std::string& name : named)
    if (std::ranges::find(known, name) == known.end()) {
      diagnostics.error(
          key, fmt::format("{} is no input that the {} can read as a whole: name {}",
                           printable(name), model.family().title,
                           known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
      return;
    }
  model.set_whole(std::move(named));
}

// Returns what the data are of a model that reads arrays.
DataFormat array_format(const ModelFamily& family, Values& v) {
  const std::string format = v.text("dstrain.data.format");
  if (format != "auto") return format == "images" ? DataFormat::images : DataFormat::arrays;
  const std::vector<std::string> paths = v.texts("dstrain.data.path");
  if (family.usually_images)
    return are_all(paths, names_arrays) ? DataFormat::arrays : DataFormat::images;
  return are_all(paths, names_images) ? DataFormat::images : DataFormat::arrays;
}

// Files of arrays tell their formats themselves.
void solve_arrays(Job& job, Values& v, Diagnostics& diagnostics) {
  solve_whole(job.model, v, diagnostics);
  if (job.data.format == DataFormat::images) return solve_images(job, v, diagnostics);
  leave_out(kOfImages, "the data are arrays", v, diagnostics);
  constexpr std::string_view key = "dstrain.data.format";
  const std::string format = v.text(key);
  if (format != "arrays" && format != "auto")
    diagnostics.error(key, fmt::format("\"{}\" is of models that read text, and the {} reads "
                                       "arrays: use \"arrays\" or \"images\", or remove the key",
                                       format, job.model.family().title));
}

}  // namespace

void solve_data(Job& job, Values& v, Diagnostics& diagnostics, const ConfigRequest& request) {
  DataConfig& d = job.data;
  const ModelFamily& family = job.model.family();
  if (!family.reads_files()) {
    d.random_order = false;
    return;
  }
  if (family.reads_arrays()) d.format = array_format(family, v);
  solve_files(d, family, v, diagnostics, request);
  d.random_order = v.text("dstrain.data.order") == "random";
  d.val_fraction = d.val_path.empty() ? v.real("dstrain.data.val_fraction") : 0;
  const bool arrays = family.reads_arrays();
  if (arrays)
    solve_arrays(job, v, diagnostics);
  else
    solve_tokens(job, v, diagnostics, request);
  if (family.is_fixed)
    leave_out(arrays ? std::span<const std::string_view>(kOfTexts) : kOfArrays,
              fmt::format("the data are {}", arrays ? "arrays" : "texts"), v, diagnostics);
  if (family.is_fixed && !arrays) leave_out(kOfImages, "the data are texts", v, diagnostics);
}

}  // namespace dstrain
