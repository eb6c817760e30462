"""Device nodes in a world of one seed: virtual time, network and disks, faults and liars.

    plan        what one seed switches on: nodes, a method, faults, byzantine members
    world       a heap of events under one virtual clock; carries out what cores want done
    air, disk   a network and disks that lose, tear, delay and refuse
    byzantine   members that keep to the format and mean no good
    audit       sentences that hold in every schedule
    swarm       many seeds, on several processes; shrink: the smallest schedule that still fails

The core that runs here is the one that runs on devices, unchanged. A seed and a commit replay a
schedule bit for bit.
"""
