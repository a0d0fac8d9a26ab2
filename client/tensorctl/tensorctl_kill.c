#include "client/lib/control.h"
#include "client/tensorctl/tensorctl.h"
#include "proto/wire/frame.h"

int tensorctl_kill(struct control *control, uint64_t session, const char *reason, struct fault *fault) {
    Tensord__KillSession request = TENSORD__KILL_SESSION__INIT;
    ProtobufCMessage *done;
    request.session = session;
    request.reason = (char *)(uintptr_t)reason;
    int error = control_call(control, FRAME_KILL_SESSION, &request.base, FRAME_DONE, &done, fault);
    if (error == STATUS_OK)
        protobuf_c_message_free_unpacked(done, NULL);
    return error;
}
