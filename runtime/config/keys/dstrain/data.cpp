// Section dstrain.data: the files of a run, and how samples are made of them.
#include <fmt/core.h>

#include "runtime/config/family/family.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

Judgement makes_samples(const Facts& facts) {
  return {State::no_effect, fmt::format("the {} makes its own samples", facts.family->title)};
}

// These keys are of data files of every kind.
constexpr Rule kFileData{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                           if (!facts.family->reads_files() && !facts.family->open)
                             return makes_samples(facts);
                           return {};
                         },
                         "honoured; no_effect for a model without tokens or arrays"};

constexpr Rule kTextData{
    [](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
      if (facts.family->open) return {};  // its file says what it reads
      if (facts.family->reads_arrays())
        return {State::no_effect, fmt::format("the {} reads arrays", facts.family->title)};
      if (!facts.family->reads_tokens()) return makes_samples(facts);
      return {};
    },
    "honoured; no_effect for a model without tokens"};

constexpr Rule kValFraction{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      if ((facts.family->reads_files() || facts.family->open) &&
          !facts.text("dstrain.data.val_path").empty())
        return {State::no_effect, "dstrain.data.val_path is for validation, all else for training"};
      return kFileData.judge(facts, spec, value);
    },
    "honoured; no_effect with dstrain.data.val_path, or for a model without tokens or arrays"};

constexpr Rule kArrayData{
    [](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
      if (!facts.family->reads_arrays() && !facts.family->open)
        return {State::no_effect, fmt::format("the {} reads no arrays", facts.family->title)};
      return {};
    },
    "honoured; no_effect for a model that reads no arrays"};

constexpr Rule kImageData{
    [](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
      if (!facts.family->reads_arrays() && !facts.family->open)
        return {State::no_effect, fmt::format("the {} reads no images", facts.family->title)};
      return {};
    },
    "honoured; no_effect for data that are no images"};

constexpr Rule kTooLong{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      if ((facts.family->reads_tokens() || facts.family->open) &&
          facts.text("dstrain.data.packing") == "none")
        return {State::no_effect, "samples are parts of a stream of tokens"};
      return kTextData.judge(facts, spec, value);
    },
    "honoured; no_effect without dstrain.data.packing, or for a model without tokens"};

}  // namespace

std::vector<KeySpec> data() {
  return {
      {.key = "dstrain.data", .type = Type::section},
      {.key = "dstrain.data.path",
       .type = Type::string_or_strings,
       .note =
           "required to train: a file, or several of bytes, token ids or arrays, or of text for "
           "the tokenizer of --model DIR, or folders of images, as a list or as a pattern such as "
           "data/*.bin; samples "
           "do not cross files",
       .rule = &kFileData},
      {.key = "dstrain.data.val_path",
       .type = Type::string,
       .note = "a file for validation, of the data's format and vocabulary; unset: the end of the "
               "data",
       .rule = &kFileData},
      {.key = "dstrain.data.seq_len",
       .type = Type::integer,
       .note = "tokens of a sample, at most those that the model can have; unset: those that it is "
               "made "
               "for, of a Hugging Face model at most 1024",
       .rule = &kTextData,
       .min = 1,
       .max = 2147483647},
      {.key = "dstrain.data.format",
       .type = Type::choice,
       .fallback = "\"auto\"",
       .note = "of models whose inputs are arrays arrays (.safetensors, .npz and .npy files, and "
               "folders of .npy files) or images (folders of classes, or CIFAR's binary files); "
               "auto: there, and of an exported model, by the names of the data",
       .rule = &kFileData,
       .choices = "auto|char|byte|bin|arrays|images"},
      {.key = "dstrain.data.token_dtype",
       .type = Type::choice,
       .fallback = "\"auto\"",
       .note = "the ids of token files without a header; auto: uint32 where every second 16-bit "
               "word is 0, or with more than 65536 ids at most the upper half of the largest one, "
               "else uint16",
       .rule = &kTextData,
       .choices = "auto|uint16|uint32"},
      {.key = "dstrain.data.vocab",
       .type = Type::string,
       .note =
           "the output directory of a run on text, or its vocab.json, whose characters the text "
           "is read with; unset: the text's own",
       .rule = &kTextData},
      {.key = "dstrain.data.order",
       .type = Type::choice,
       .fallback = "\"random\"",
       .rule = &kFileData,
       .choices = "random|sequential"},
      {.key = "dstrain.data.packing",
       .type = Type::choice,
       .fallback = "\"none\"",
       .note = "samples are parts of the stream of all tokens (none); whole documents of token "
               "files, or of texts for a tokenizer, as many as fit (pack), or one with padding "
               "(pad)",
       .rule = &kTextData,
       .choices = "none|pack|pad"},
      {.key = "dstrain.data.too_long",
       .type = Type::choice,
       .fallback = "\"cut\"",
       .note = "what becomes of a document that is longer than a sample: its first tokens (cut), "
               "nothing (drop), or the end of the run (error)",
       .rule = &kTooLong,
       .choices = "cut|drop|error"},
      {.key = "dstrain.data.whole",
       .type = Type::string_or_strings,
       .note = "inputs of which every sample has all of the array, which then has no axis of "
               "samples; where all inputs are named, a file is one sample",
       .rule = &kArrayData},
      {.key = "dstrain.data.val_fraction",
       .type = Type::real,
       .fallback = "0.1",
       .note = "the end of the data, kept for validation",
       .rule = &kValFraction,
       .min = 0,
       .max = 1,
       .open = true},
      {.key = "dstrain.data.mean",
       .type = Type::real_or_reals,
       .fallback = "0",
       .note = "what is taken from the values of images, which are from 0 to 1: of all channels, "
               "or a number for each",
       .rule = &kImageData,
       .min = -1000,
       .max = 1000},
      {.key = "dstrain.data.std",
       .type = Type::real_or_reals,
       .fallback = "1",
       .note = "what the values of images are divided by then: of all channels, or a number for "
               "each",
       .rule = &kImageData,
       .min = 0,
       .open = true},
      {.key = "dstrain.data.crop",
       .type = Type::integer,
       .fallback = "0",
       .note = "black pixels that training puts around an image, before it takes a part of the "
               "model's size at a random place; 0: the middle",
       .rule = &kImageData,
       .min = 0,
       .max = 4096},
      {.key = "dstrain.data.flip",
       .fallback = "false",
       .note = "training mirrors half of the images, drawn at random",
       .rule = &kImageData},
      {.key = "dstrain.data.size",
       .type = Type::integer,
       .note = "pixels of the shorter side, to which images of folders are scaled; unset: all "
               "have the model's size",
       .rule = &kImageData,
       .min = 1,
       .max = 4096},
      {.key = "dstrain.data.chat_template",
       .type = Type::string,
       .note =
           "how the messages of FILE.jsonl are written: dstrain's own chatml, llama3 or qwen, or "
           "a file (own.jinja); unset: by the template of the model's folder",
       .rule = &kTextData},
      {.key = "dstrain.data.loss_on",
       .type = Type::choice,
       .note =
           "the tokens of FILE.jsonl that count in the loss: the assistant's of messages, those "
           "of a completion, or all; unset: by the kind of line",
       .rule = &kTextData,
       .choices = "assistant|completion|all"},
      {.key = "dstrain.data.skip_invalid",
       .fallback = "false",
       .note = "leave out invalid lines of FILE.jsonl; false: the first one is an error",
       .rule = &kTextData}};
}

}  // namespace dstrain::keys
