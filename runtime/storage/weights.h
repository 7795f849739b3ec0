// Loading weights: named tensors in safetensors files (docs/formats.md). A rank reads only the bytes of its own slices,
// and of whole rows where its part of them is short.
#pragma once

#include <string>

#include "runtime/config/family/weight_map.h"
#include "runtime/storage/state.h"

namespace dstrain {

// Fills every slice of `want` from the tensors of a file, or of the files of an index, that have it, which are F32, F16,
// BF16 or 8-bit floats with scales (weights/fp8_blocks.h): that of its name, or its parts (mapped()). The slice may be one of a part of its tensor (StateEntry::part), whose
// padding becomes zeros. Slots are ignored. `names`: what the files may have otherwise. Throws one UserError that lists all
// missing and superfluous tensors and all wrong shapes.
void load_weights(const std::string& path, const StateRegister& want,
                  const ForeignNames& names = {});

// Does only the checks of load_weights, for the launching process; `want` needs no local tensors.
void check_weights(const std::string& path, const StateRegister& want,
                   const ForeignNames& names = {});

}  // namespace dstrain
