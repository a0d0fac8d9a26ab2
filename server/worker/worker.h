/* The worker process: one device, its engine, and the loop that serves its clients. It is started by the front, obeys
 * the messages of the channel (server/ipc/channel.h), and ends when the channel does. */
#pragma once

/* `channel`: a SOCK_SEQPACKET socket whose first message is CHANNEL_START; `stats_page`: a file to map, of the size of
 * struct stats_page, or -1. Runs until the worker ends; returns the exit status. */
int worker_main(int channel, int stats_page);
