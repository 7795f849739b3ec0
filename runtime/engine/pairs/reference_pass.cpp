#include "runtime/engine/pairs/reference_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "runtime/config/family/family.h"
#include "runtime/config/read/run_folder.h"
#include "runtime/config/text.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/log/log.h"
#include "runtime/plan/mesh.h"
#include "runtime/storage/on_all_ranks.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kSecondsBetweenWrites = 10;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns what a sample is, for messages.
std::string_view unit_of(const Job& job) {
  return job.objective.has_pairs() && job.data.packing != Packing::pack ? "pair" : "sample";
}

std::string file_in(const std::string& run) {
  return run + "/cache/references.bin";
}

uint64_t sum_of_text(const std::string& text) {
  return checksum_of(text.data(), std::ssize(text));
}

// Returns a checksum of which weights a run begins with: a file's bytes change its size or its time.
uint64_t key_of_weights(const Job& job) {
  const std::string base = job.base_weights.value_or("");
  if (base.empty()) return sum_of_text(fmt::format("fresh {}", job.seed));
  std::string text;
  for (const std::string& file :
       files_of_weights(fs::is_directory(base) ? directory_weights(base, "--model") : base))
    text += fmt::format("{} {} {}; ", fs::path(file).filename().string(), fs::file_size(file),
                        fs::last_write_time(file).time_since_epoch().count());
  return sum_of_text(text);
}

// Returns a checksum of the data, their order and the model.
uint64_t key_of_data(const Job& job, const Dataset& dataset) {
  std::string model(job.model.family().type);
  for (const ModelKey& key : job.model.family().keys)
    std::visit([&](const auto& value) { model += fmt::format(" {}", value); },
               job.model.value(key.name()));
  return sum_of_text(fmt::format(
      "{:016x} {:016x}, {} and {} samples, T {}, order {} {}, dtype {}, {}{}",
      dataset.fingerprint(), dataset.validation_fingerprint(), dataset.samples(Split::train),
      dataset.samples(Split::validation), job.model.seq_len(), job.data.random_order, job.seed,
      name_of(job.dtype), model, job.data.packing == Packing::pack ? ", packed" : ""));
}

}  // namespace

ReferencePass::ReferencePass(const Job& job, const Dataset& dataset, Communicator& comm,
                             Measure measure)
    : job_(job),
      dataset_(dataset),
      table_(*dataset.references()),
      comm_(comm),
      measure_(std::move(measure)),
      path_(file_in(job.output)),
      resumed_(job.resume.empty() ? path_ : file_in(run_folder_of(job.resume))) {}

ReferencePass::Sample ReferencePass::sample(int64_t number) const {
  const int64_t trained = table_.samples(Split::train);
  const Split split = number < trained ? Split::train : Split::validation;
  return {split, dataset_.sample_at(split, number < trained ? number : number - trained)};
}

size_t ReferencePass::values_of(int64_t number) const {
  const Sample of = sample(number);
  return table_.places(of.split, of.number).size();
}

void ReferencePass::put(int64_t number, const float* values) {
  const Sample of = sample(number);
  const std::span<float> to = table_.at(of.split, of.number);
  std::copy_n(values, to.size(), to.begin());
}

int64_t ReferencePass::share(std::vector<float> read) {
  auto values = static_cast<double>(read.size());
  comm_.broadcast({&values, {1}, DType::f64}, 0).wait();
  const auto count = static_cast<size_t>(values);
  done_ = std::move(read);
  done_.resize(count);
  if (count > 0) comm_.broadcast({done_.data(), {std::ssize(done_)}, DType::f32}, 0).wait();
  int64_t number = 0;
  size_t at = 0;
  for (; number < all_samples() && at + values_of(number) <= count; ++number) {
    put(number, done_.data() + at);
    at += values_of(number);
  }
  done_.resize(at);
  return number;
}

ReferencePass::Wishes ReferencePass::measure_batch(int64_t number, const Wishes& wishes) {
  const int64_t trained = table_.samples(Split::train);
  const Split split = number < trained ? Split::train : Split::validation;
  const int64_t first = number < trained ? number : number - trained;
  const int64_t micro = job_.batch.micro_batch, end = table_.samples(split);
  const auto width = static_cast<size_t>(micro * table_.width());
  std::vector<float> mine = measure_(split, first, end);
  const bool has = !mine.empty();
  mine.resize(width);
  mine.insert(mine.end(),
              {has ? 1.0f : 0.0f, wishes.stop ? 1.0f : 0.0f, wishes.write ? 1.0f : 0.0f});
  std::vector<float> all(mine.size() * static_cast<size_t>(comm_.size()));
  comm_
      .all_gather({mine.data(), {std::ssize(mine)}, DType::f32},
                  {all.data(), {std::ssize(all)}, DType::f32})
      .wait();
  const int64_t batch = micro * place_of(job_, 0).ranks_in(kSampleAxes);
  const int64_t count = std::min(batch, end - first);
  // Where the values of each sample of the batch are in done_.
  std::vector<size_t> begins{done_.size()};
  for (int64_t s = 0; s < count; ++s) begins.push_back(begins.back() + values_of(number + s));
  done_.resize(begins.back());
  for (int r = 0; r < comm_.size(); ++r) {
    const float* const of_rank = all.data() + static_cast<size_t>(r) * mine.size();
    if (of_rank[width + 1] != 0) {
      done_.resize(begins.front());
      return {.stop = true, .write = true};
    }
    if (of_rank[width] == 0) continue;
    const int64_t at = place_of(job_, r).rank_in(kSampleAxes) * micro;
    for (int64_t i = at; i < std::min(at + micro, count); ++i) {
      const float* const measured = of_rank + (i - at) * table_.width();
      const Sample of = sample(number + i);
      float* to = done_.data() + begins[static_cast<size_t>(i)];
      for (const int32_t place : table_.places(of.split, of.number)) *to++ = measured[place];
    }
  }
  for (int64_t s = 0; s < count; ++s)
    put(number + s, done_.data() + begins[static_cast<size_t>(s)]);
  measured_ += count;
  return {.stop = false, .write = all[width + 2] != 0};
}

void ReferencePass::write() {
  on_all_ranks(comm_, "write the log-probabilities of the reference", [&] {
    if (!root()) return;
    make_directory(fs::path(path_).parent_path().string());
    ReferenceFile(path_, key_).write(done_);
  });
}

bool ReferencePass::fill(bool may_measure, const std::function<bool()>& stopped) {
  const int64_t all = all_samples();
  std::vector<float> read;
  if (root()) {
    key_ = {key_of_data(job_, dataset_), may_measure ? key_of_weights(job_) : 0};
    const ReferenceKey wanted = key_;
    for (const std::string& path : {path_, resumed_}) {
      ReferenceFile file(path, wanted);
      std::vector<float> held = file.read(table_.values());
      if (held.size() <= read.size()) continue;
      read = std::move(held);
      key_ = file.key();
    }
  }
  const int64_t known = share(std::move(read));
  if (known < all && !may_measure)
    fail_user(
        "--resume: {} has not the log-probabilities that the initial weights give to these data, "
        "and the weights are not the initial ones any more: put the file and the data back, or "
        "begin anew",
        resumed_);
  const auto begin = Clock::now();
  auto written = begin;
  measured_ = known;
  while (measured_ < all) {
    const Wishes agreed = measure_batch(
        measured_, {.stop = stopped(), .write = seconds_since(written) > kSecondsBetweenWrites});
    if (agreed.write) {
      write();
      written = Clock::now();
      if (root()) log::info("reference: {} of {}", measured_, counted(all, unit_of(job_)));
    }
    if (agreed.stop) return false;
  }
  if (known < all || path_ != resumed_) write();
  if (root() && known < all)
    log::info(
        "reference: the log-probabilities that the initial weights give to {}, {} of them measured "
        "in {:.1f} s",
        counted(all, unit_of(job_)), all - known, seconds_since(begin));
  return true;
}

}  // namespace dstrain
