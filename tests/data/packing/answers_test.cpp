// Samples that are two rows of answers.
#include <algorithm>
#include <array>

#include "tests/data/packing/document_folder.h"

namespace dstrain {
namespace {

TEST_CASE("a sample of pairs has a row for each answer, and the references of its own") {
  DocumentFolder folder;
  // The second pair has a document of one token, the fourth one that is too long.
  const std::vector<std::vector<uint16_t>> documents{
      {1, 2, 3}, {1, 4}, {9}, {21, 22}, {31, 32}, {33, 34, 35}, {41, 42, 43, 44, 45}, {41, 42}};
  Job job = folder.job(folder.write("a.bin", documents), 4, Packing::pad);
  job.objective.kind = ObjectiveKind::dpo;
  job.data.too_long = TooLong::drop;
  const auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 2);
  CHECK_THAT(data->summary(), Catch::Contains("4 documents in 2 training pairs of 4"));
  ReferenceTable* const table = data->references();
  REQUIRE((table && table->width() == 2 && table->samples(Split::train) == 2));
  for (int64_t place = 0; place < 2; ++place) {
    const int64_t sample = data->sample_at(Split::train, place);
    const auto number = static_cast<float>(place);
    std::ranges::copy(std::array{number, number + 0.5f}, table->at(Split::train, sample).begin());
  }
  Ids ids(16), labels(16);
  std::vector<float> references(4);
  const std::array inputs{
      InputTensor{"ids", InputRole::token_ids, {ids.data(), {2, 8}, DType::i32}},
      InputTensor{"targets", InputRole::labels, {labels.data(), {2, 8}, DType::i32}},
      InputTensor{"reference", InputRole::reference, {references.data(), {2, 2}, DType::f32}}};
  data->read(Split::train, 0, 2, inputs);
  CHECK(ids == Ids{1, 2, 3, 0, 1, 4, 0, 0, 31, 32, 0, 0, 33, 34, 35, 0});
  CHECK(labels == Ids{2, 3, -1, -1, 4, -1, -1, -1, 32, -1, -1, -1, 34, 35, -1, -1});
  CHECK(references == std::vector<float>{0, 0.5f, 1, 1.5f});
}

// The pairs have 3, 4 and 2 tokens at most.
TEST_CASE(
    "packed pairs have the same place in both rows of a sample, and their references begin there") {
  DocumentFolder folder;
  const std::string file =
      folder.write("a.bin", {{1, 2, 3}, {1, 4}, {21, 22}, {21, 23, 24, 25}, {31, 32}, {31, 33}});
  Job job = folder.job(file, 6, Packing::pack);
  job.objective.kind = ObjectiveKind::dpo;
  job.data.random_order = false;
  const auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 2);
  CHECK_THAT(data->summary(), Catch::Contains("3 pairs in 2 training samples of 6, 62.5 % full"));
  ReferenceTable* const table = data->references();
  REQUIRE((table && table->width() == 12 && table->values() == 6));
  std::ranges::copy(std::array{1.0f, 2.0f, 3.0f, 4.0f}, table->at(Split::train, 0).begin());
  std::ranges::copy(std::array{5.0f, 6.0f}, table->at(Split::train, 1).begin());
  CHECK(std::ranges::equal(table->places(Split::train, 0), std::array{0, 6, 4, 10}));
  Ids ids(24), labels(24), documents(24);
  std::vector<float> references(24, -1);
  const std::array inputs{
      InputTensor{"ids", InputRole::token_ids, {ids.data(), {2, 12}, DType::i32}},
      InputTensor{"documents", InputRole::documents, {documents.data(), {2, 12}, DType::i32}},
      InputTensor{"targets", InputRole::labels, {labels.data(), {2, 12}, DType::i32}},
      InputTensor{"reference", InputRole::reference, {references.data(), {2, 12}, DType::f32}}};
  data->read(Split::train, 0, 2, inputs);
  CHECK(ids == Ids{21, 22, 0, 0, 31, 32, 21, 23, 24, 25, 31, 33,  //
                   1,  2,  3, 0, 0,  0,  1,  4,  0,  0,  0,  0});
  CHECK(labels == Ids{22, -1, -1, -1, 32, -1, 23, 24, 25, -1, 33, -1,  //
                      2,  3,  -1, -1, -1, -1, 4,  -1, -1, -1, -1, -1});
  CHECK(documents == Ids{0, 0, 2, 2, 4, 4, 0, 0, 0, 0, 4, 4,  //
                         0, 0, 0, 3, 3, 3, 0, 0, 2, 3, 3, 3});
  CHECK(references == std::vector<float>{1, 0, 0, 0, 3, 0, 2, 0, 0, 0, 4, 0,  //
                                         5, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0});
  job.objective.kind = ObjectiveKind::reward;
  const auto scored = open_dataset(job);
  scored->read(Split::train, 0, 2, std::span(inputs).first(3));
  CHECK(labels == Ids{-1, 22, -1, -1, -1, 32, -1, -1, -1, 25, -1, 33,  //
                      -1, -1, 3,  -1, -1, -1, -1, 4,  -1, -1, -1, -1});
}

TEST_CASE("the last tokens of answers that get a score have a target, and no other ones") {
  DocumentFolder folder;
  const std::string file = folder.write("a.bin", {{1, 2, 3}, {4, 5, 6, 7}});
  folder.write_targets("a.bin", "0110010");
  Job job = folder.job(file, 4, Packing::pad);
  job.objective.kind = ObjectiveKind::reward;
  const auto data = open_dataset(job);
  CHECK(data->references() == nullptr);
  Ids ids(8), labels(8);
  const std::array inputs{
      InputTensor{"ids", InputRole::token_ids, {ids.data(), {1, 8}, DType::i32}},
      InputTensor{"targets", InputRole::labels, {labels.data(), {1, 8}, DType::i32}}};
  data->read(Split::train, 0, 1, inputs);
  CHECK(ids == Ids{1, 2, 3, 0, 4, 5, 6, 7});
  CHECK(labels == Ids{-1, -1, 3, -1, -1, -1, -1, 7});
}

TEST_CASE("a sample of a rated answer says whether it is desirable") {
  DocumentFolder folder;
  const std::vector<std::vector<uint16_t>> documents{{1, 2, 3}, {1, 4}, {5, 6, 7}, {5, 3}};
  const std::string file = folder.write("a.bin", documents);
  std::ofstream(file + ".targets", std::ios::binary) << std::string("\0\1\1\0\1\0\2\2\0\1", 10);
  Job job = folder.job(file, 4, Packing::pad);
  job.objective = {.kind = ObjectiveKind::kto, .undesirable_weight = 0.5};
  const auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 2);
  CHECK_THAT(data->summary(), Catch::Contains("4 documents in 2 training samples of 4"));
  CHECK_THAT(data->summary(),
             Catch::Contains(", 1 of them desirable, which weigh 2 times as much as the others"));
  Ids ids(16), labels(16);
  std::vector<float> references(4), desirable(2);
  const std::array inputs{
      InputTensor{"ids", InputRole::token_ids, {ids.data(), {2, 8}, DType::i32}},
      InputTensor{"targets", InputRole::labels, {labels.data(), {2, 8}, DType::i32}},
      InputTensor{"reference", InputRole::reference, {references.data(), {2, 2}, DType::f32}},
      InputTensor{"desirable", InputRole::desirable, {desirable.data(), {2, 1}, DType::f32}}};
  data->read(Split::train, 0, 2, inputs);
  CHECK(labels == Ids{2, 3, -1, -1, 4, -1, -1, -1, 6, 7, -1, -1, 3, -1, -1, -1});
  CHECK(desirable == std::vector<float>{1, 0});
}

}  // namespace
}  // namespace dstrain
