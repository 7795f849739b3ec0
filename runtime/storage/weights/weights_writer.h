// WeightsWriter: the weights of a run as safetensors files (docs/formats.md), written slice by slice in any order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/family/weight_map.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/formats/safetensors.h"
#include "runtime/storage/weight_layout.h"

namespace dstrain {

// How weights are written. The default: f32, in one file, in the model's order.
struct WeightsFormat {
  // As the safetensors package writes them: in the order of names, and divided over several files, with an index, where
  // they have more than `shard_bytes`.
  bool as_package = false;
  int64_t shard_bytes = 0;
  std::vector<KeptTensor> kept{};  // written into the last file, as they are
  // Returns the dtype of a tensor by its name: f32, f16 or bf16. Empty: f32.
  std::function<DType(const std::string& tensor)> dtype{};
};

// Removes the weights that readers would find in a folder, as far as possible: model.safetensors, or the index and the
// files that it lists.
void remove_weights(const std::string& folder);

class WeightsWriter {
 public:
  // `path`: DIR/model.safetensors, whose shards are DIR/model-00001-of-00003.safetensors, beside their index; or a file of
  // another name that has no shards. The files get the tensors of `weights`, by their names or parts and global shapes;
  // local tensors are ignored.
  WeightsWriter(std::string path, const StateRegister& weights, const WeightsFormat& format = {});

  // Writes elements [begin, begin + values.elements()) of the weight `name`; `values` is f32. Throws RunError.
  void write(std::string_view name, int64_t begin, const Tensor& values);

  // Makes the files durable under temporary names, so that finish() does little more than to rename them. The caller must
  // have written every element. Throws RunError.
  void complete();
  // Puts the files in place of earlier ones in the same folder, which it removes: those that an index there lists, too. A
  // crash leaves the earlier weights, these, or none that can be read, but no mix of both. Without finish() no file remains.
  void finish();

 private:
  struct TensorProgress {
    size_t index = 0;  // in the layout
    int64_t elements = 0, written = 0;
  };
  // Where a tensor of the layout is.
  struct TensorPosition {
    size_t file = 0;
    int64_t begin = 0;  // byte in the file
    DType dtype = DType::f32;
  };
  void divide(const WeightsFormat& format);
  void begin_file(std::vector<size_t> tensors, const std::string& name, bool sorted,
                  const std::vector<KeptTensor>& kept);
  std::string index_text() const;
  std::string beside(std::string_view name) const;

  std::string path_;
  WeightLayout layout_;
  std::vector<TensorPosition> positions_;  // as layout_.tensors()
  std::vector<std::unique_ptr<NewFile>> files_;
  std::unique_ptr<NewFile> index_;  // of several files, once they are complete
  std::vector<std::string> names_;  // of files_, without the folder
  std::map<std::string, TensorProgress, std::less<>> progress_;  // of every weight
  std::vector<float> together_;    // a run of elements that are apart in the weight
  std::vector<uint16_t> rounded_;  // a run in 16 bits
};

}  // namespace dstrain
