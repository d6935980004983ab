"""The manager: jobs in front of the queue `tasks`, in the order of priority and fairness."""
