// Samples of whole documents of token files.
#include <array>
#include <cstring>
#include <random>

#include "runtime/data/packing/pack.h"
#include "tests/data/packing/document_folder.h"

namespace dstrain {
namespace {

std::vector<DocumentPart> parts_of(const std::vector<int32_t>& lengths) {
  std::vector<DocumentPart> parts;
  int64_t begin = 0;
  for (const int32_t tokens : lengths) {
    parts.push_back({.tokens = tokens, .begin = begin});
    begin += tokens;
  }
  return parts;
}

std::vector<std::vector<int32_t>> lengths_of(const PackedSamples& packed) {
  std::vector<std::vector<int32_t>> samples;
  for (int64_t s = 0; s < packed.samples(); ++s) {
    samples.emplace_back();
    for (const DocumentPart& part : packed.sample(s)) samples.back().push_back(part.tokens);
  }
  return samples;
}

TEST_CASE("best fit puts the longest documents first, each where it leaves the least room") {
  const PackedSamples packed(parts_of({3, 7, 2, 5, 8, 1}), 10, true);
  CHECK(lengths_of(packed) == std::vector<std::vector<int32_t>>{{8, 2}, {7, 3}, {5, 1}});
  CHECK(packed.tokens() == 26);
  CHECK(packed.documents() == 6);
  CHECK(lengths_of({parts_of({3, 7, 2}), 10, false}) ==
        std::vector<std::vector<int32_t>>{{3}, {7}, {2}});
  CHECK(lengths_of({parts_of({10, 10}), 10, true}) ==
        std::vector<std::vector<int32_t>>{{10}, {10}});
  CHECK(PackedSamples({}, 10, true).samples() == 0);
  CHECK_THROWS_WITH(PackedSamples(parts_of({11}), 10, true),
                    Catch::Contains("a document of 11 tokens in samples of 10"));
}

TEST_CASE("groups of documents are packed by the longest of each") {
  const PackedSamples packed(parts_of({3, 6, 1, 2, 5, 4, 2, 2}), 8, true, 2);
  CHECK(lengths_of(packed) == std::vector<std::vector<int32_t>>{{3, 6, 1, 2}, {5, 4, 2, 2}});
  CHECK((packed.groups() == 4 && packed.documents() == 8 && packed.tokens() == 25));
  CHECK(lengths_of({parts_of({3, 6, 1, 2}), 8, false, 2}) ==
        std::vector<std::vector<int32_t>>{{3, 6}, {1, 2}});
  CHECK_THROWS_WITH(PackedSamples(parts_of({3, 6, 1}), 8, true, 2), Catch::Contains("no groups"));
}

TEST_CASE("packing keeps every document once, and fills samples of ordinary documents") {
  std::mt19937 random(5);
  std::vector<int32_t> lengths;
  for (int i = 0; i < 5000; ++i) lengths.push_back(1 + static_cast<int32_t>(random() % 200));
  const std::vector<DocumentPart> parts = parts_of(lengths);
  const PackedSamples packed(parts, 256, true);
  std::vector<DocumentPart> found;
  for (int64_t s = 0; s < packed.samples(); ++s) {
    int32_t tokens = 0;
    for (const DocumentPart& part : packed.sample(s)) {
      tokens += part.tokens;
      found.push_back(part);
    }
    REQUIRE(tokens <= 256);
    REQUIRE(tokens > 0);
  }
  std::ranges::sort(found, {}, &DocumentPart::begin);
  CHECK(found == parts);
  CHECK(static_cast<double>(packed.tokens()) > 0.98 * 256 * static_cast<double>(packed.samples()));
}

struct DocumentBatch {
  Ids ids, labels, documents;
};

DocumentBatch read_documents(const Dataset& data, Split split, int64_t first, int64_t count,
                             int64_t length) {
  DocumentBatch b;
  for (Ids* values : {&b.ids, &b.labels, &b.documents})
    values->assign(static_cast<size_t>(count * length), -7);
  const std::array inputs{
      InputTensor{"ids", InputRole::token_ids, {b.ids.data(), {count, length}, DType::i32}},
      InputTensor{
          "documents", InputRole::documents, {b.documents.data(), {count, length}, DType::i32}},
      InputTensor{"targets", InputRole::labels, {b.labels.data(), {count, length}, DType::i32}}};
  data.read(split, first, count, inputs);
  return b;
}

const std::vector<std::vector<uint16_t>> kDocuments{
    {1, 2, 3}, {11, 12, 13, 14, 15}, {9}, {21, 22}, {31, 32, 33, 34}};

TEST_CASE("a sample of packed documents has their places, and no target behind a last token") {
  DocumentFolder folder;
  const auto data = open_dataset(folder.job(folder.write("a.bin", kDocuments), 8, Packing::pack));
  REQUIRE(data->samples(Split::train) == 2);
  const DocumentBatch b = read_documents(*data, Split::train, 0, 2, 8);
  CHECK(b.ids == Ids{11, 12, 13, 14, 15, 1, 2, 3, 31, 32, 33, 34, 21, 22, 0, 0});
  CHECK(b.labels == Ids{12, 13, 14, 15, -1, 2, 3, -1, 32, 33, 34, -1, 22, -1, -1, -1});
  CHECK(b.documents == Ids{0, 0, 0, 0, 0, 5, 5, 5, 0, 0, 0, 0, 4, 4, 6, 6});
  CHECK(data->summary().ends_with(
      "14 tokens, ids up to 34; 4 documents in 2 training samples of 8, 87.5 % full, 1 document "
      "of less than two tokens left out, none for validation"));
}

TEST_CASE("a padded sample is one document") {
  DocumentFolder folder;
  const auto data = open_dataset(folder.job(folder.write("a.bin", kDocuments), 6, Packing::pad));
  REQUIRE(data->samples(Split::train) == 4);
  Ids ids(12), labels(12);
  const std::array inputs{
      InputTensor{"ids", InputRole::token_ids, {ids.data(), {2, 6}, DType::i32}},
      InputTensor{"targets", InputRole::labels, {labels.data(), {2, 6}, DType::i32}}};
  data->read(Split::train, 1, 2, inputs);
  CHECK(ids == Ids{11, 12, 13, 14, 15, 0, 21, 22, 0, 0, 0, 0});
  CHECK(labels == Ids{12, 13, 14, 15, -1, -1, 22, -1, -1, -1, -1, -1});
}

TEST_CASE("a sample has positions of tokens and a mask, where a model reads them") {
  DocumentFolder folder;
  const std::string file = folder.write("a.bin", kDocuments);
  for (const Packing packing : {Packing::pack, Packing::pad}) {
    const auto data = open_dataset(folder.job(file, 8, packing));
    Ids ids(16), labels(16), positions(16), mask(16);
    const std::array inputs{
        InputTensor{"x", InputRole::token_ids, {ids.data(), {2, 8}, DType::i32}},
        InputTensor{"y", InputRole::labels, {labels.data(), {2, 8}, DType::i32}},
        InputTensor{"p", InputRole::positions, {positions.data(), {2, 8}, DType::i32}},
        InputTensor{"m", InputRole::mask, {mask.data(), {2, 8}, DType::i32}}};
    data->read(Split::train, packing == Packing::pack ? 0 : 1, 2, inputs);
    if (packing == Packing::pack) {
      CHECK(positions == Ids{0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 0, 1, 0, 1});
      CHECK(mask == Ids{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0});
    } else {
      CHECK(positions == Ids{0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 0, 1, 2, 3, 4, 5});
      CHECK(mask == Ids{1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0});
    }
  }
}

// The tokens of kDocuments are 3, 5, 1, 2 and 4.
TEST_CASE("packed and padded tokens that FILE.targets has 0 for are no targets") {
  DocumentFolder folder;
  Job job = folder.job(folder.write("a.bin", kDocuments), 8, Packing::pack);
  const uint64_t all = open_dataset(job)->fingerprint();
  folder.write_targets("a.bin",
                       "101"
                       "00110"
                       "1"
                       "01"
                       "1110");
  const auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 2);
  const DocumentBatch b = read_documents(*data, Split::train, 0, 2, 8);
  CHECK(b.ids == Ids{11, 12, 13, 14, 15, 1, 2, 3, 31, 32, 33, 34, 21, 22, 0, 0});
  CHECK(b.labels == Ids{-1, 13, 14, -1, -1, -1, 3, -1, 32, 33, -1, -1, 22, -1, -1, -1});
  CHECK(data->fingerprint() != all);
  job.data.packing = Packing::pad;
  const auto padded = open_dataset(job);
  REQUIRE(padded->samples(Split::train) == 4);
  Ids ids(8), labels(8);
  const std::array inputs{
      InputTensor{"ids", InputRole::token_ids, {ids.data(), {1, 8}, DType::i32}},
      InputTensor{"targets", InputRole::labels, {labels.data(), {1, 8}, DType::i32}}};
  padded->read(Split::train, 1, 1, inputs);
  CHECK(ids == Ids{11, 12, 13, 14, 15, 0, 0, 0});
  CHECK(labels == Ids{-1, 13, 14, -1, -1, -1, -1, -1});
}

TEST_CASE("documents without a target are left out, also where a cut takes all targets") {
  DocumentFolder folder;
  Job job = folder.job(folder.write("a.bin", kDocuments), 4, Packing::pack);
  // The first one's only token that counts has none before it; the second one's is behind the cut.
  folder.write_targets("a.bin",
                       "100"
                       "00001"
                       "1"
                       "11"
                       "1111");
  auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 2);
  const DocumentBatch b = read_documents(*data, Split::train, 0, 2, 4);
  CHECK(b.ids == Ids{31, 32, 33, 34, 21, 22, 0, 0});
  CHECK(b.labels == Ids{32, 33, 34, -1, 22, -1, -1, -1});
  CHECK(data->summary().ends_with(
      "6 tokens, ids up to 34; 2 documents in 2 training samples of 4, 75.0 % full, 1 document of "
      "less than two tokens left out, 2 documents without a target in the first 4 tokens left out, "
      "none for validation"));
  job.model.set_seq_len(5);
  CHECK(open_dataset(job)->summary().find(
            "1 document without a target in the first 5 tokens left out") != std::string::npos);
  folder.write_targets("a.bin", std::string(15, '0'));
  CHECK(open_error(job) ==
        "the training data have no document with a token that counts in the loss among its first "
        "5, by FILE.targets: a.bin: give a larger dstrain.data.seq_len, or other documents");
  folder.write_targets("a.bin", std::string(14, '1'));
  CHECK(open_error(job).find("a.bin.targets has 14 bytes") != std::string::npos);
}

TEST_CASE("documents for validation have the targets that FILE.targets names") {
  DocumentFolder folder;
  Job job = folder.job(folder.write("a.bin", kDocuments), 8, Packing::pack);
  job.data.val_fraction = 0.3;  // of 15 tokens the last 4
  folder.write_targets("a.bin",
                       "111"
                       "11111"
                       "1"
                       "11"
                       "0010");
  CHECK(read_documents(*open_dataset(job), Split::validation, 0, 1, 8).labels ==
        Ids{-1, 33, -1, -1, -1, -1, -1, -1});
  job.data.val_fraction = 0;
  job.data.val_path = folder.write("b.bin", {{41, 42}, {51, 52, 53}});
  const uint64_t all = open_dataset(job)->validation_fingerprint();
  folder.write_targets("b.bin",
                       "00"
                       "001");
  const auto data = open_dataset(job);
  const DocumentBatch b = read_documents(*data, Split::validation, 0, 1, 8);
  CHECK(b.ids == Ids{51, 52, 53, 0, 0, 0, 0, 0});
  CHECK(b.labels == Ids{-1, 53, -1, -1, -1, -1, -1, -1});
  CHECK(data->validation_fingerprint() != all);
  folder.write_targets("b.bin",
                       "10"
                       "100");
  CHECK(open_error(job).starts_with("the validation data have no document with a token"));
}

TEST_CASE("a document that is longer than a sample is cut, dropped or an error") {
  DocumentFolder folder;
  Job job = folder.job(folder.write("a.bin", kDocuments), 4, Packing::pack);
  const DocumentBatch cut = read_documents(*open_dataset(job), Split::train, 0, 1, 4);
  CHECK(cut.ids == Ids{11, 12, 13, 14});
  CHECK(cut.labels == Ids{12, 13, 14, -1});
  CHECK(open_dataset(job)->summary().find(", 1 longer one cut to it") != std::string::npos);
  job.data.too_long = TooLong::drop;
  CHECK(open_dataset(job)->samples(Split::train) == 3);
  CHECK(open_dataset(job)->summary().find(", 1 longer one left out") != std::string::npos);
  job.data.too_long = TooLong::error;
  CHECK(open_error(job) ==
        "the document at token 3 of " + folder.path("a.bin") +
            " has 5 tokens, and a sample 4: give a larger dstrain.data.seq_len, or "
            "dstrain.data.too_long \"cut\" or \"drop\"");
}

TEST_CASE("documents for validation are the last ones, or those of a file of their own") {
  DocumentFolder folder;
  Job job = folder.job(folder.write("a.bin", kDocuments), 8, Packing::pack);
  job.data.val_fraction = 0.3;  // of 15 tokens the last 4
  auto data = open_dataset(job);
  CHECK(data->samples(Split::validation) == 1);
  CHECK(read_documents(*data, Split::validation, 0, 1, 8).ids == Ids{31, 32, 33, 34, 0, 0, 0, 0});
  CHECK(read_documents(*data, Split::train, 1, 1, 8).ids == Ids{21, 22, 0, 0, 0, 0, 0, 0});
  job.data.val_fraction = 0;
  job.data.val_path = folder.write("b.bin", {{41, 42}, {51, 52, 53}});
  data = open_dataset(job);
  CHECK(read_documents(*data, Split::validation, 0, 1, 8).ids == Ids{51, 52, 53, 41, 42, 0, 0, 0});
  CHECK(data->summary().ends_with(", 1 for validation from " + folder.path("b.bin")));
  CHECK(data->files(Split::validation).paths == std::vector{folder.path("b.bin")});
  CHECK(data->validation_fingerprint() != 0);
}

TEST_CASE("documents of several files are packed together, and places give the same samples") {
  DocumentFolder folder;
  const std::string first = folder.write("a.bin", kDocuments),
                    second = folder.write("b.bin", {{41, 42}, {51, 52, 53, 54, 55, 56}});
  Job job = folder.job(first, 8, Packing::pack);
  job.data.paths = {first, second};
  job.data.random_order = true;
  const auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 3);
  const DocumentBatch all = read_documents(*data, Split::train, 0, 3, 8);
  CHECK(std::ranges::count(all.ids, 0) == 2);
  for (const int32_t id : {3, 15, 22, 34, 42, 56}) CHECK(std::ranges::count(all.ids, id) == 1);
  const DocumentBatch last = read_documents(*data, Split::train, 2, 1, 8);
  CHECK(last.ids == Ids(all.ids.end() - 8, all.ids.end()));
  CHECK(last.documents == Ids(all.documents.end() - 8, all.documents.end()));
  const uint64_t before = data->fingerprint();
  folder.write("b.bin", {{41, 42, 51}, {52, 53, 54, 55, 56}});  // the same tokens
  CHECK(open_dataset(job)->fingerprint() != before);
}

TEST_CASE("packing refuses files whose documents are missing, of another file, or text") {
  DocumentFolder folder;
  const std::string path = folder.write("a.bin", kDocuments);
  const Job job = folder.job(path, 8, Packing::pack);
  const auto error_with = [&](const std::string& documents) {
    folder.write_text("a.bin.documents", documents);
    return open_error(job);
  };
  const auto numbers = [](const std::vector<uint64_t>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 8);
  };
  const std::string again = ": write it and " + path + " again with `dstrain tokenize`";
  CHECK(error_with("123456789") ==
        path + ".documents is no array of at least two 64-bit integers" + again);
  CHECK(error_with(numbers({1, 15})) == path + ".documents does not begin with token 0" + again);
  CHECK(error_with(numbers({0, 5, 4, 15})) == path + ".documents falls behind its entry 1" + again);
  CHECK(error_with(numbers({0, 16})) ==
        path + ".documents ends with token 16, and " + path + " has 15" + again);
  CHECK(error_with(numbers({0, uint64_t(1) << 63, 15})).find("falls behind") != std::string::npos);
  CHECK(error_with(numbers({0, 15})) == "no error");
  std::vector<uint64_t> short_ones(16);
  for (size_t i = 0; i < 16; ++i) short_ones[i] = i;
  CHECK(error_with(numbers(short_ones)) ==
        "the training data have no document of two tokens or more: a.bin: give more documents");
  folder.write_text("b.bin", "abcd");
  CHECK(open_error(folder.job(folder.path("b.bin"), 8, Packing::pack)) ==
        folder.path("b.bin") + ".documents is missing, which says where the documents of " +
            folder.path("b.bin") +
            " begin: `dstrain tokenize` writes it, and dstrain.data.packing \"none\" does without");
  Job text = text_job(folder.path("c.txt"), 8);
  folder.write_text("c.txt", "some text");
  text.data.packing = Packing::pad;
  CHECK(open_error(text) ==
        "dstrain.data.packing \"pad\" wants token files, and " + folder.path("c.txt") +
            " holds text: `dstrain tokenize` makes one of it, and \"none\" does "
            "without");
}

}  // namespace
}  // namespace dstrain
