// The pass that measures references: which samples it asks for, and how it goes on where it was stopped.
#include "runtime/engine/pairs/reference_pass.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>

#include "runtime/comm/self_comm.h"
#include "runtime/core/error.h"
#include "runtime/engine/pairs/pair_count.h"
#include "runtime/engine/pairs/reference_file.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;

namespace {

constexpr int64_t kTrained = 7, kHeldOut = 3;

// Samples whose order is turned around.
class Pairs final : public Dataset {
 public:
  int64_t samples(Split split) const override {
    return split == Split::train ? kTrained : kHeldOut;
  }
  void read(Split, int64_t, int64_t, std::span<const InputTensor>) const override {}
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  ReferenceTable* references() const override { return &table_; }
  int64_t sample_at(Split split, int64_t place) const override {
    return samples(split) - 1 - place;
  }

 private:
  Vocabulary vocabulary_;
  mutable ReferenceTable table_{2, kTrained, kHeldOut};
};

Job pair_job(const TempDir& dir) {
  Job job;
  job.model = GptLite{};
  job.batch.micro_batch = 2;
  job.objective.kind = ObjectiveKind::dpo;
  job.output = dir.path();
  return job;
}

// What the weights give to the row of the sample at a place.
float value_of(Split split, int64_t place, int64_t row) {
  return static_cast<float>(100 * (split == Split::train ? 1 : 2) + 10 * place + row);
}

struct Passed {
  bool full = false;
  std::vector<std::pair<Split, int64_t>> batches;
};

// Runs a pass that is stopped after so many batches.
Passed pass(const Job& job, const Dataset& data, int64_t batches = 100, bool may_measure = true) {
  SelfComm comm;
  Passed passed;
  ReferencePass references(job, data, comm, [&](Split split, int64_t first, int64_t) {
    passed.batches.emplace_back(split, first);
    std::vector<float> values;
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t row = 0; row < 2; ++row) values.push_back(value_of(split, first + i, row));
    return values;
  });
  passed.full = references.fill(may_measure, [&] { return std::ssize(passed.batches) >= batches; });
  return passed;
}

void check_table(const Pairs& data) {
  for (const Split split : {Split::train, Split::validation})
    for (int64_t place = 0; place < data.samples(split); ++place)
      for (int64_t row = 0; row < 2; ++row)
        CHECK(
            data.references()->at(split, data.sample_at(split, place))[static_cast<size_t>(row)] ==
            value_of(split, place, row));
}

}  // namespace

TEST_CASE("references of all samples are measured batch by batch, and read the next time") {
  const TempDir dir;
  const Job job = pair_job(dir);
  const Pairs data;
  const Passed first = pass(job, data);
  CHECK(first.full);
  CHECK(first.batches == std::vector<std::pair<Split, int64_t>>{{Split::train, 0},
                                                                {Split::train, 2},
                                                                {Split::train, 4},
                                                                {Split::train, 6},
                                                                {Split::validation, 0},
                                                                {Split::validation, 2}});
  check_table(data);
  const Pairs again;
  const Passed second = pass(job, again, 100, false);
  CHECK((second.full && second.batches.empty()));
  check_table(again);
}

TEST_CASE("a pass that was stopped goes on behind the samples that it has measured") {
  const TempDir dir;
  const Job job = pair_job(dir);
  const Pairs data;
  // The batch in which it is asked to stop is measured once more.
  CHECK_FALSE(pass(job, data, 2).full);
  const Pairs again;
  CHECK_THROWS_WITH(pass(job, again, 100, false), Catch::Contains("are not the initial ones"));
  const Passed rest = pass(job, again);
  CHECK(rest.full);
  CHECK(rest.batches.front() == std::pair(Split::train, int64_t{4}));
  check_table(again);
}

namespace {

// Samples of four places, of which some have one value and others two.
class PackedPairs final : public Dataset {
 public:
  PackedPairs() : table_(4, places(kTrained), places(kHeldOut)) {}
  int64_t samples(Split split) const override { return table_.samples(split); }
  void read(Split, int64_t, int64_t, std::span<const InputTensor>) const override {}
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  ReferenceTable* references() const override { return &table_; }

 private:
  static ReferencePlaces places(int64_t samples) {
    ReferencePlaces all;
    for (int64_t s = 0; s < samples; ++s)
      all.add_sample(s % 2 == 0 ? std::vector<int32_t>{2} : std::vector<int32_t>{0, 3});
    return all;
  }

  Vocabulary vocabulary_;
  mutable ReferenceTable table_;
};

// Runs a pass that is stopped after so many batches. What the weights give to place p of sample s is 10 s + p.
int64_t packed_pass(const Job& job, const Dataset& data, int64_t batches = 100) {
  SelfComm comm;
  int64_t measured = 0;
  ReferencePass references(job, data, comm, [&](Split, int64_t first, int64_t) {
    ++measured;
    std::vector<float> values;
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t place = 0; place < 4; ++place)
        values.push_back(static_cast<float>(10 * (first + i) + place));
    return values;
  });
  references.fill(true, [&] { return measured >= batches; });
  return measured;
}

}  // namespace

TEST_CASE("of samples with several answers the values at their places are kept") {
  const TempDir dir;
  const Job job = pair_job(dir);
  CHECK(packed_pass(job, PackedPairs(), 2) == 3);
  const PackedPairs data;
  CHECK(packed_pass(job, data) == 6 - 2);
  CHECK(data.references()->at(Split::train, 6)[0] == 62);
  for (const Split split : {Split::train, Split::validation})
    for (int64_t s = 0; s < data.samples(split); ++s) {
      std::array<float, 4> values{};
      data.references()->write(split, s, values.data());
      const auto of = [s](int64_t place) { return static_cast<float>(10 * s + place); };
      CHECK(values == (s % 2 == 0 ? std::array<float, 4>{0, 0, of(2), 0}
                                  : std::array<float, 4>{of(0), 0, 0, of(3)}));
    }
  CHECK(packed_pass(job, PackedPairs()) == 0);
}

TEST_CASE("pairs are documents that begin at the same place of both rows with a target in both") {
  // Two samples of two rows of four tokens.
  std::vector<int32_t> documents{0, 0, 2, 2, 0, 0, 2, 3, 0, 1, 1, 3, 0, 0, 1, 1};
  std::vector<int32_t> labels{5, -1, 6, 6, 7, -1, 8, -1, 5, -1, -1, 5, -1, -1, 9, -1};
  const std::array inputs{
      InputTensor{"targets", InputRole::labels, {labels.data(), {2, 8}, DType::i32}},
      InputTensor{"documents", InputRole::documents, {documents.data(), {2, 8}, DType::i32}}};
  CHECK(count_pairs(inputs) == 2);
  labels[9] = 3;
  CHECK(count_pairs(inputs) == 3);
  CHECK(count_pairs(std::span(inputs).first(1)) == 0);
}

TEST_CASE("a file of references of something else, or with a wrong byte, has none") {
  const TempDir dir;
  const std::string path = dir.path() + "/references.bin";
  const std::vector<float> values{1, 2, 3, 4};
  ReferenceFile(path, {5, 6}).write(values);
  CHECK(ReferenceFile(path, {5, 6}).read(4) == values);
  CHECK(ReferenceFile(path, {5, 6}).read(3).empty());
  CHECK(ReferenceFile(path, {5, 0}).read(4) == values);
  CHECK(ReferenceFile(path, {6, 6}).read(4).empty());
  CHECK(ReferenceFile(path, {5, 7}).read(4).empty());
  CHECK(ReferenceFile(path + "x", {5, 6}).read(4).empty());
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string wrong = bytes;
    wrong[at] = static_cast<char>(wrong[at] ^ 1);
    dir.write("references.bin", wrong);
    CHECK(ReferenceFile(path, {5, 6}).read(4).empty());
  }
  for (size_t length = 0; length < bytes.size(); ++length) {
    dir.write("references.bin", bytes.substr(0, length));
    CHECK(ReferenceFile(path, {5, 6}).read(4).empty());
  }
}
