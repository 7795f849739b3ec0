#include "runtime/data/open_dataset.h"

#include <string>
#include <utility>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/array_source.h"
#include "runtime/data/arrays/array_dataset.h"
#include "runtime/data/file/data_files.h"
#include "runtime/data/file/file_kind.h"
#include "runtime/data/generated_dataset.h"
#include "runtime/data/images/image_dataset.h"
#include "runtime/data/packing/packed_dataset.h"
#include "runtime/data/text_source.h"
#include "runtime/data/token_dataset.h"

namespace dstrain {
namespace {

DataFormat format_of(const DataConfig& config, const DataFile& file) {
  if (config.format != DataFormat::automatic) return config.format;
  const bool tokens = is_token_file(file);
  if (!tokens) refuse_doubtful(file, TextIds::characters);
  return tokens ? DataFormat::tokens : DataFormat::characters;
}

// Returns what a job says of the ids of token files without a header.
TokenWidthHints hints_of(const Job& job) {
  return {.given = job.data.token_dtype, .vocabulary = job.model.vocabulary()};
}

// Opens a file in a format that is not `automatic`. `vocabulary`, if it is not null, is that of `owner`.
std::unique_ptr<TokenSource> open_as(DataFormat format, const TokenWidthHints& hints,
                                     std::unique_ptr<DataFile> file,
                                     const Vocabulary* vocabulary = nullptr,
                                     std::string_view owner = {}) {
  switch (format) {
    case DataFormat::tokens:
      return open_token_file(std::move(file), hints);
    case DataFormat::bytes:
      return open_bytes(std::move(file));
    default:
      return open_text(std::move(file), vocabulary, owner);
  }
}

// Returns what a text is called in messages about its format.
std::string_view kind_of(DataFormat format) {
  return format == DataFormat::tokens  ? "token ids"
         : format == DataFormat::bytes ? "bytes"
                                       : "text";
}

// Opens a file that is read with the vocabulary of another run.
std::unique_ptr<TokenSource> open_with_vocabulary(const DataConfig& config, DataFormat format,
                                                  std::unique_ptr<DataFile> file) {
  const Vocabulary vocabulary = vocabulary_of_run(config.vocab);
  if (format == DataFormat::tokens)
    fail_user(
        "the data file {} holds token ids, and --vocab {} is a vocabulary of text: leave it out",
        file->path(), printable(config.vocab));
  if (config.format != DataFormat::automatic && format != vocabulary.format)
    fail_user(
        "dstrain.data.format is \"{}\", and the vocabulary of --vocab {} has {}: leave the format "
        "out",
        format == DataFormat::bytes ? "byte" : "char", printable(config.vocab),
        format == DataFormat::bytes ? "characters" : "bytes");
  return open_as(vocabulary.format, {}, std::move(file), &vocabulary, "--vocab");
}

using Sources = std::vector<std::unique_ptr<TokenSource>>;

// Opens the training files, which must have one vocabulary.
Sources open_sources(const Job& job) {
  const DataConfig& config = job.data;
  const std::vector<std::string> paths = data_files(config.paths);
  if (paths.empty())
    fail_user("there is no data to train on: give a file with --data or dstrain.data.path");
  Sources sources;
  for (const std::string& path : paths) {
    auto file = std::make_unique<DataFile>(path);
    const DataFormat format = format_of(config, *file);
    sources.push_back(config.vocab.empty() ? open_as(format, hints_of(job), std::move(file))
                                           : open_with_vocabulary(config, format, std::move(file)));
    const Vocabulary &first = sources.front()->vocabulary(), &last = sources.back()->vocabulary();
    if (first.format != last.format)
      fail_user("the data file {} holds {}, and {} holds {}: give files of one kind", path,
                kind_of(last.format), paths.front(), kind_of(first.format));
    if (sources.size() > 1 && first.format == DataFormat::characters)
      fail_user(
          "the data are {} of text, {} and others, of which each would have characters of its own: "
          "join them into one, or give token files",
          counted(static_cast<int64_t>(paths.size()), "file"), paths.front());
  }
  return sources;
}

// Opens the file for validation as the training files.
std::unique_ptr<TokenSource> open_validation(const Job& job, const TokenSource& training) {
  const DataConfig& config = job.data;
  auto file = std::make_unique<DataFile>(config.val_path);
  const Vocabulary& vocabulary = training.vocabulary();
  const bool tokens = format_of(config, *file) == DataFormat::tokens;
  if (tokens != (vocabulary.format == DataFormat::tokens))
    fail_user(
        "the validation file {} holds {}, and the data file {} holds {}: give files of one "
        "kind",
        config.val_path, tokens ? "token ids" : "text", training.file().path(),
        kind_of(vocabulary.format));
  return open_as(vocabulary.format, hints_of(job), std::move(file), &vocabulary,
                 "the training data");
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const Job& job) {
  if (job.data.format == DataFormat::images) return std::make_unique<ImageDataset>(job);
  if (job.model.family().reads_arrays()) return std::make_unique<ArrayDataset>(job);
  if (!job.model.family().reads_tokens()) return std::make_unique<GeneratedDataset>(job);
  Sources sources = open_sources(job);
  if (job.data.token_dtype != TokenDtype::automatic &&
      sources.front()->vocabulary().format != DataFormat::tokens)
    fail_user(
        "dstrain.data.token_dtype is of token files, and {} holds {}: remove the key, or give "
        "dstrain.data.format \"bin\"",
        sources.front()->file().path(), kind_of(sources.front()->vocabulary().format));
  std::unique_ptr<TokenSource> validation;
  if (!job.data.val_path.empty()) validation = open_validation(job, *sources.front());
  if (job.data.packing != Packing::none) {
    if (sources.front()->vocabulary().format != DataFormat::tokens)
      fail_user(
          "dstrain.data.packing \"{}\" wants token files, and {} holds {}: `dstrain tokenize` "
          "makes "
          "one of it, and \"none\" does without",
          job.data.packing == Packing::pack ? "pack" : "pad", sources.front()->file().path(),
          kind_of(sources.front()->vocabulary().format));
    return std::make_unique<PackedDataset>(job, std::move(sources), std::move(validation));
  }
  return std::make_unique<TokenDataset>(job, std::move(sources), std::move(validation));
}

std::unique_ptr<TokenSource> open_for_model(const std::string& path, const Job& trained,
                                            const Vocabulary& vocabulary) {
  auto file = std::make_unique<DataFile>(path);
  const bool tokens = format_of(trained.data, *file) == DataFormat::tokens;
  if (tokens != (vocabulary.format == DataFormat::tokens))
    fail_user("--data {} holds {}, and the model was trained on {}: give a file of that kind", path,
              tokens ? "token ids" : "text", kind_of(vocabulary.format));
  return checked_for_model(
      open_as(vocabulary.format, hints_of(trained), std::move(file), &vocabulary, "the run"),
      trained);
}

std::unique_ptr<TokenSource> checked_for_model(std::unique_ptr<TokenSource> source,
                                               const Job& trained) {
  if (source->tokens() < 2)
    fail_user("--data {} has {}: there is nothing to predict", source->file().path(),
              counted(source->tokens(), source->unit()));
  const ModelConfig& model = trained.model;
  source->check_ids(0, source->tokens(),
                    {model.vocabulary(), model_path(model.family().vocabulary_key())});
  source->file().check_whole();
  return source;
}

}  // namespace dstrain
