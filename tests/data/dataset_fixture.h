// Jobs and samples for the tests of datasets.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/data/open_dataset.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

namespace dstrain {

inline Job text_job(const std::string& path, int64_t block_size,
                    DataFormat format = DataFormat::automatic) {
  Job job = job_of(GptLite{.block_size = block_size});
  if (!path.empty()) job.data.paths = {path};
  job.data.format = format;
  job.data.random_order = false;
  job.data.val_fraction = 0;
  return job;
}

// The token ids of some samples and of their targets, one sample after another.
struct Samples {
  std::vector<int32_t> inputs, targets;
};

inline Samples read_samples(const Dataset& dataset, Split split, int64_t first, int64_t count,
                            int64_t block_size) {
  Samples s;
  s.inputs.assign(static_cast<size_t>(count * block_size), -1);
  s.targets = s.inputs;
  const InputTensor batch[] = {
      {"ids", InputRole::token_ids, {s.inputs.data(), {count, block_size}, DType::i32}},
      {"targets", InputRole::labels, {s.targets.data(), {count, block_size}, DType::i32}}};
  dataset.read(split, first, count, batch);
  return s;
}

// Returns the message of the UserError that opening throws.
inline std::string open_error(const Job& job) {
  try {
    open_dataset(job);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace dstrain
