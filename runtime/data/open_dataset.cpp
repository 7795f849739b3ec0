#include "runtime/data/open_dataset.h"

#include "runtime/core/error.h"
#include "runtime/data/array_source.h"
#include "runtime/data/benchmark_dataset.h"
#include "runtime/data/file/file_kind.h"
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

std::unique_ptr<TokenSource> open_source(const DataConfig& config) {
  if (config.path.empty())
    fail_user("there is no data to train on: give a file with --data or dstrain.data.path");
  auto file = std::make_unique<DataFile>(config.path);
  switch (format_of(config, *file)) {
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
  if (job.model.kind == ModelKind::benchmark) return std::make_unique<BenchmarkDataset>(job);
  return std::make_unique<TokenDataset>(job, open_source(job.data));
}

}  // namespace dstrain
