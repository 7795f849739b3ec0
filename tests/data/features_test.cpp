// Features that are made beside the tokens of a file.
#include "runtime/data/generated_features.h"
#include "tests/data/dataset_fixture.h"
#include "tests/models/own_model.h"

namespace dstrain {
namespace {

constexpr int64_t kLength = 4, kNotes = 5;

Job notes_job(const std::string& path) {
  Job job;
  job.model = ModelConfig(bigram_with_notes());
  job.model.set("length", kLength);
  job.model.set("notes", kNotes);
  job.data.paths = {path};
  job.data.random_order = true;
  job.data.val_fraction = 0.2;
  job.seed = 77;
  return job;
}

struct NotesBatch {
  std::vector<int32_t> ids, labels;
  std::vector<float> notes;
};

NotesBatch read_notes(const Dataset& data, Split split, int64_t first, int64_t count) {
  const auto tokens = static_cast<size_t>(count * kLength);
  NotesBatch b{std::vector<int32_t>(tokens), std::vector<int32_t>(tokens),
               std::vector<float>(tokens * kNotes)};
  const InputTensor batch[] = {
      {"ids", InputRole::token_ids, {b.ids.data(), {count, kLength}, DType::i32}},
      {"notes", InputRole::features, {b.notes.data(), {count, kLength, kNotes}, DType::f32}},
      {"targets", InputRole::labels, {b.labels.data(), {count, kLength}, DType::i32}}};
  data.read(split, first, count, batch);
  return b;
}

std::vector<float> features_of(Split split, int64_t sample) {
  std::vector<float> x(kLength * kNotes);
  GeneratedFeatures(77, kLength * kNotes).fill(split, sample, x.data());
  return x;
}

// A text in which each sample's first token says which sample it is.
std::string numbered_text(int64_t samples) {
  std::string text;
  for (int64_t i = 0; i < samples; ++i) text += std::string(1, static_cast<char>('A' + i)) + "...";
  return text + ".";
}

TEST_CASE("features of a sample lie beside its tokens, in every epoch and batch") {
  const TempDir folder;
  Job job = notes_job(folder.write("t.txt", numbered_text(10)));
  job.data.val_fraction = 0;
  const auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 10);
  const NotesBatch epochs = read_notes(*data, Split::train, 0, 30);
  std::vector<int32_t> order;
  for (int64_t place = 0; place < 30; ++place) {
    const int32_t sample = epochs.ids[static_cast<size_t>(place * kLength)] - 1;  // 0 is "."
    order.push_back(sample);
    const std::vector<float> expected = features_of(Split::train, sample);
    CHECK(std::equal(expected.begin(), expected.end(),
                     epochs.notes.begin() + place * kLength * kNotes));
    CHECK(read_notes(*data, Split::train, place, 1).notes == expected);
  }
  CHECK(order != std::vector<int32_t>(order.rbegin(), order.rend()));
  CHECK(epochs.labels[0] == epochs.ids[1]);
  CHECK(data->summary() ==
        job.data.paths[0] +
            ": 41 characters, vocabulary 11; 10 training samples of 4, none for validation, whose "
            "part has 0 characters and needs 5; 20 made-up features beside each");
}

TEST_CASE("features of the validation part are not those of the training part") {
  const TempDir folder;
  const auto data = open_dataset(notes_job(folder.write("t.txt", numbered_text(20))));
  REQUIRE(data->samples(Split::validation) == 3);
  const NotesBatch first = read_notes(*data, Split::validation, 1, 1);
  CHECK(first.notes == features_of(Split::validation, 1));
  CHECK(first.notes != features_of(Split::train, 1));
}

TEST_CASE("a batch without an input of the model, or with a wrong one, is refused") {
  const TempDir folder;
  const auto data = open_dataset(notes_job(folder.write("t.txt", numbered_text(20))));
  std::vector<int32_t> ids(kLength), labels(kLength);
  std::vector<float> notes(kLength * kNotes);
  std::vector<InputTensor> batch{
      {"ids", InputRole::token_ids, {ids.data(), {1, kLength}, DType::i32}},
      {"targets", InputRole::labels, {labels.data(), {1, kLength}, DType::i32}}};
  CHECK_THROWS_WITH(data->read(Split::train, 0, 1, batch),
                    "samples are read into a batch that has no features");
  batch.push_back({"notes", InputRole::features, {notes.data(), {1, kLength}, DType::f32}});
  CHECK_THROWS_WITH(data->read(Split::train, 0, 1, batch),
                    "1 samples of 20 features are read into notes, which is f32 (1, 4)");
}

}  // namespace
}  // namespace dstrain
