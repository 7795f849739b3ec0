// What a teacher gives to the tokens of samples (FILE.teacher).
#include <fmt/format.h>

#include <array>
#include <fstream>
#include <limits>

#include "runtime/core/dtype.h"
#include "runtime/data/teacher/teacher_file.h"
#include "tests/data/packing/document_folder.h"

namespace dstrain {
namespace {

constexpr int64_t kTopK = 2;

// Writes FILE.teacher: the tokens behind token i are i and i + 1, by -1/2 and -2. Of token `none` they are nothing.
void write_teacher(const std::string& file, int64_t tokens, int64_t none = -1,
                   int64_t top_k = kTopK) {
  std::ofstream out(file + ".teacher", std::ios::binary);
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t j = 0; j < top_k; ++j) {
      const auto id = static_cast<uint32_t>(i == none ? 0 : i + j);
      out.write(reinterpret_cast<const char*>(&id), sizeof(id));
    }
    for (int64_t j = 0; j < top_k; ++j) {
      const float value = j == 0 ? -0.5f : -2.0f;
      const f16 half = to_f16(i == none ? -std::numeric_limits<float>::infinity() : value);
      out.write(reinterpret_cast<const char*>(&half.bits), sizeof(half.bits));
    }
  }
}

// A batch of two samples of four tokens.
struct Batch {
  Ids ids = Ids(8), labels = Ids(8), documents = Ids(8), teacher = Ids(24);
  std::vector<float> log_probs = std::vector<float>(16);
  std::array<InputTensor, 5> inputs{
      InputTensor{"ids", InputRole::token_ids, {ids.data(), {2, 4}, DType::i32}},
      InputTensor{"targets", InputRole::labels, {labels.data(), {2, 4}, DType::i32}},
      InputTensor{"documents", InputRole::documents, {documents.data(), {2, 4}, DType::i32}},
      InputTensor{"teacher_ids", InputRole::teacher_ids, {teacher.data(), {2, 4, 3}, DType::i32}},
      InputTensor{"teacher_log_probs",
                  InputRole::teacher_log_probs,
                  {log_probs.data(), {2, 4, 2}, DType::f32}}};
  std::span<const InputTensor> without_documents() {
    inputs[2] = inputs[0];
    return inputs;
  }
};

Job taught_job(const DocumentFolder& folder, const std::string& file, Packing packing) {
  Job job = folder.job(file, 4, packing);
  job.objective = {.kind = ObjectiveKind::distill, .teacher_top_k = kTopK};
  job.data.random_order = false;
  return job;
}

std::string problem(const Job& job) {
  try {
    open_dataset(job);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

constexpr float kNone = kNoLogProb;

TEST_CASE("documents have the teacher's tokens at their places, and padding has none") {
  DocumentFolder folder;
  const std::string file = folder.write("a.bin", {{10, 11}, {12, 13, 14, 15, 16}, {17, 18}});
  write_teacher(file, 9, 2);
  Job job = taught_job(folder, file, Packing::pack);
  const auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 2);
  Batch b;
  data->read(Split::train, 0, 2, b.inputs);
  // The longest document comes first, cut to four tokens; then the two short ones.
  CHECK(b.labels == Ids{13, 14, 15, -1, 11, -1, 18, -1});
  CHECK(b.teacher == Ids{13, 0, 0, 14, 3,  4,  15, 4, 5, -1, -1, -1,  //
                         11, 0, 1, -1, -1, -1, 18, 7, 8, -1, -1, -1});
  CHECK(b.log_probs == std::vector<float>{kNone, kNone, -0.5f, -2, -0.5f, -2, kNone, kNone,  //
                                          -0.5f, -2, kNone, kNone, -0.5f, -2, kNone, kNone});
  // A document of a sample, and padding behind it.
  job = taught_job(folder, file, Packing::pad);
  const auto padded = open_dataset(job);
  padded->read(Split::train, 0, 2, b.inputs);
  CHECK(Ids(b.teacher.begin(), b.teacher.begin() + 12) ==
        Ids{11, 0, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1});
  CHECK(b.log_probs[0] == -0.5f);
  CHECK(b.log_probs[4] == kNone);
}

TEST_CASE("windows have the teacher's tokens of their places, in several files") {
  DocumentFolder folder;
  const std::string a = folder.write("a.bin", {{10, 11, 12, 13, 14}}),
                    b = folder.write("b.bin", {{20, 21, 22, 23, 24, 25}});
  write_teacher(a, 5);
  write_teacher(b, 6);
  Job job = taught_job(folder, a, Packing::none);
  job.data.paths = {a, b};
  const auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 2);
  Batch batch;
  data->read(Split::train, 0, 2, batch.without_documents());
  CHECK(batch.teacher == Ids{11, 0, 1, 12, 1, 2, 13, 2, 3, 14, 3, 4,  //
                             21, 0, 1, 22, 1, 2, 23, 2, 3, 24, 3, 4});
  // A batch of a validation has no place for them.
  data->read(Split::train, 0, 2, std::span(batch.inputs).first(2));
  // Other values are other data.
  const uint64_t before = data->fingerprint();
  write_teacher(b, 6, 0);
  CHECK(open_dataset(job)->fingerprint() != before);
}

TEST_CASE("a file of a teacher that is not there, or of another number of tokens, is an error") {
  DocumentFolder folder;
  const std::string file = folder.write("a.bin", {{10, 11, 12, 13, 14}});
  const Job job = taught_job(folder, file, Packing::none);
  CHECK_THAT(problem(job), Catch::Contains("there is no " + file + ".teacher") &&
                               Catch::Contains("dstrain teach --model DIR --data " + file));
  write_teacher(file, 5, -1, 3);
  CHECK_THAT(problem(job), Catch::Contains("it has 3 log-probabilities a token") &&
                               Catch::Contains("set the key to 3"));
  write_teacher(file, 4);
  CHECK_THAT(problem(job), Catch::Contains("it has 48 bytes") && Catch::Contains("make 60"));
  write_teacher(file, 5);
  CHECK(problem(job).empty());
}

TEST_CASE("a teacher's token outside of the vocabulary, or a value above 0, ends the run") {
  DocumentFolder folder;
  const std::string file = folder.write("a.bin", {{10, 11, 12, 13, 14, 1, 2, 3, 4}});
  write_teacher(file, 9);
  Job job = taught_job(folder, file, Packing::none);
  Batch batch;
  const auto read = [&] {
    std::string message;
    try {
      open_dataset(job)->read(Split::train, 0, 2, batch.without_documents());
    } catch (const RunError& e) {
      message = e.what();
    }
    return message;
  };
  CHECK(read().empty());
  const auto overwrite = [&](int64_t at, const auto& value) {
    std::fstream f(file + ".teacher", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(at);
    f.write(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  overwrite(2 * 12, uint32_t{100});
  CHECK_THAT(read(), Catch::Contains("token 2: the teacher gives id 100"));
  write_teacher(file, 9);
  for (const float wrong : {0.5f, std::numeric_limits<float>::quiet_NaN()}) {
    overwrite(3 * 12 + 8, to_f16(wrong).bits);
    CHECK_THAT(read(), Catch::Contains("token 3: the teacher gives id 3"));
  }
}

// Writes the record of FILE.teacher, as dstrain teach does: of documents, or of windows of so many tokens.
void write_record(const std::string& file, bool documents, int64_t length) {
  const auto checksum = [](const std::string& path) {
    return fmt::format("{:016x}", DataFile(path).checksum());
  };
  std::ofstream(file + ".teacher.json")
      << record_text({.data = checksum(file),
                      .documents = documents ? checksum(file + ".documents") : std::string(),
                      .length = length});
}

std::string summary_of(const Job& job) {
  return open_dataset(job)->summary();
}

TEST_CASE("a teacher's file with a record is of these data and these samples") {
  DocumentFolder folder;
  const std::vector<std::vector<uint16_t>> documents{{10, 11}, {12, 13, 14, 15, 16}, {17, 18}};
  const std::string file = folder.write("a.bin", documents);
  write_teacher(file, 9);
  const Job pack = taught_job(folder, file, Packing::pack),
            windows = taught_job(folder, file, Packing::none);
  CHECK_THAT(summary_of(pack),
             Catch::Contains("nothing says of which data " + file + ".teacher is"));
  CHECK_THAT(summary_of(windows), Catch::Contains(file + ".teacher.json is not there"));
  // The first five tokens of a document are as good as four; three are not enough for the longest one.
  for (const int64_t length : {4, 5}) {
    write_record(file, true, length);
    CHECK_THAT(summary_of(pack), !Catch::Contains("nothing says"));
  }
  write_record(file, true, 3);
  CHECK_THAT(problem(pack), Catch::Contains("the first 3 tokens of each document") &&
                                Catch::Contains("set dstrain.data.seq_len to 3"));
  CHECK_THAT(problem(windows), Catch::Contains("was asked about documents of " + file) &&
                                   Catch::Contains("set dstrain.data.packing to \"pack\""));
  write_record(file, false, 4);
  CHECK_THAT(summary_of(windows), !Catch::Contains("nothing says"));
  CHECK_THAT(problem(pack), Catch::Contains("was asked about windows of " + file) &&
                                Catch::Contains("dstrain teach without --windows"));
  write_record(file, false, 5);
  CHECK_THAT(problem(windows), Catch::Contains("windows of 5 tokens"));
}

TEST_CASE("a teacher's file of other tokens, or of other documents, is an error") {
  DocumentFolder folder;
  const std::string file = folder.write("a.bin", {{10, 11}, {12, 13, 14, 15}});
  write_teacher(file, 6);
  const Job job = taught_job(folder, file, Packing::pad);
  write_record(file, true, 4);
  CHECK(problem(job).empty());
  folder.write("a.bin", {{10, 11}, {12, 13, 14, 16}});
  CHECK_THAT(problem(job), Catch::Contains("it is of other data than " + file + " has now") &&
                               !Catch::Contains("begin elsewhere"));
  folder.write("a.bin", {{10, 11, 12}, {13, 14, 15}});
  CHECK_THAT(problem(job), Catch::Contains("whose documents begin elsewhere"));
  folder.write("a.bin", {{10, 11}, {12, 13, 14, 15}});
  CHECK(problem(job).empty());
  folder.write_text("a.bin.teacher.json", "{\"data\": 5}");
  CHECK_THAT(problem(job), Catch::Contains("a.bin.teacher.json does not say what"));
}

TEST_CASE("the record of a teacher's file is the same read back") {
  for (const TeacherRecord& record :
       {TeacherRecord{.data = "0123", .documents = "4567", .length = 8},
        TeacherRecord{.data = "0123", .documents = "", .length = 9}})
    CHECK(parse_teacher_record(record_text(record)) == record);
  for (const char* const text : {"", "[]", "{}", "{\"data\":\"1\"}"})
    CHECK_FALSE(parse_teacher_record(text));
}

}  // namespace
}  // namespace dstrain
