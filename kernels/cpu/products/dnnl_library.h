// What every use of oneDNN here needs: its errors, and its instruction set held within ours.
#pragma once

#include <oneapi/dnnl/dnnl.h>

namespace dstrain {

// Call before any other function of oneDNN; the first call counts. Holds the library to
// max_isa(), and away from AMX where it would fail; a limit from ONEDNN_MAX_CPU_ISA stands.
void limit_dnnl_isa();

// Throws InternalError unless the status is success; `what` completes "oneDNN: ... failed".
void check_dnnl(dnnl_status_t status, const char* what);

}  // namespace dstrain
