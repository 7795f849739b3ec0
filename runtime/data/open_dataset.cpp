#include "runtime/data/open_dataset.h"

#include "runtime/config/model/family.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/array_source.h"
#include "runtime/data/file/file_kind.h"
#include "runtime/data/generated_dataset.h"
#include "runtime/data/text_source.h"
#include "runtime/data/token_dataset.h"

namespace dstrain {
namespace {

DataFormat format_of(const DataConfig& config, const DataFile& file) {
  if (config.format != DataFormat::automatic) return config.format;
  const bool tokens = file.path().ends_with(".bin") || has_token_header(file);
  if (!tokens) refuse_doubtful(file);
  return tokens ? DataFormat::tokens : DataFormat::characters;
}

// Opens a file that is read with the vocabulary of another run.
std::unique_ptr<TokenSource> open_with_vocabulary(const DataConfig& config, DataFormat format,
                                                  std::unique_ptr<DataFile> file) {
  const Vocabulary vocabulary = vocabulary_of_run(config.vocab);
  if (format == DataFormat::tokens)
    fail_user(
        "the data file {} holds token ids, and --vocab {} is a vocabulary of text: leave it out",
        config.path, printable(config.vocab));
  if (config.format != DataFormat::automatic && format != vocabulary.format)
    fail_user(
        "dstrain.data.format is \"{}\", and the vocabulary of --vocab {} has {}: leave the format "
        "out",
        format == DataFormat::bytes ? "byte" : "char", printable(config.vocab),
        format == DataFormat::bytes ? "characters" : "bytes");
  return vocabulary.format == DataFormat::bytes ? open_bytes(std::move(file))
                                                : open_text(std::move(file), &vocabulary);
}

std::unique_ptr<TokenSource> open_source(const DataConfig& config) {
  if (config.path.empty())
    fail_user("there is no data to train on: give a file with --data or dstrain.data.path");
  auto file = std::make_unique<DataFile>(config.path);
  const DataFormat format = format_of(config, *file);
  if (!config.vocab.empty()) return open_with_vocabulary(config, format, std::move(file));
  switch (format) {
    case DataFormat::tokens:
      return open_token_file(std::move(file));
    case DataFormat::bytes:
      return open_bytes(std::move(file));
    default:
      return open_text(std::move(file));
  }
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const Job& job) {
  if (!job.model.family().reads_tokens()) return std::make_unique<GeneratedDataset>(job);
  return std::make_unique<TokenDataset>(job, open_source(job.data));
}

}  // namespace dstrain
