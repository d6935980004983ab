"""Programs that are images of containers: what a declaration says, and the folder that is made of one."""
